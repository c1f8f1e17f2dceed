package fakehost

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A badRequest is a request whose form generation 1 refuses before it looks at what is
// asked for.
type badRequest struct {
	kind string // where it is: "Payload", "Query", "Params"
	why  string
}

func (e *badRequest) Error() string { return e.why }

// A form says why a JSON value at a place is not what a route takes; nil if it is.
type form func(at string, v any) error

func want(ok bool, at, what string) error {
	if ok {
		return nil
	}
	return &badRequest{"Payload", at + " must be " + what}
}

func aText(at string, v any) error {
	_, ok := v.(string)
	return want(ok, at, "a string")
}

func aBool(at string, v any) error {
	_, ok := v.(bool)
	return want(ok, at, "true or false")
}

func aNumber(at string, v any) error {
	_, ok := v.(float64)
	return want(ok, at, "a number")
}

func anObject(at string, v any) error {
	_, ok := v.(map[string]any)
	return want(ok, at, "an object")
}

// anID is a string that begins with the prefix of ids, which is all that the host checks.
func anID(prefix string) form {
	return func(at string, v any) error {
		s, _ := v.(string)
		return want(strings.HasPrefix(s, prefix), at, "a string that starts with "+prefix)
	}
}

func oneOf(words ...string) form {
	return func(at string, v any) error {
		s, ok := v.(string)
		return want(ok && slices.Contains(words, s), at, "one of "+strings.Join(words, ", "))
	}
}

func listOf(each form) form {
	return func(at string, v any) error {
		list, ok := v.([]any)
		if !ok {
			return want(false, at, "an array")
		}
		for i, v := range list {
			if err := each(at+"["+strconv.Itoa(i)+"]", v); err != nil {
				return err
			}
		}
		return nil
	}
}

// An object has the fields that a JSON object must and may have. Others are left out.
type object struct {
	must, may map[string]form
	noNulls   bool // null is not the same as a field of may that is not there
}

func (o object) check(at string, v any) error {
	fields, ok := v.(map[string]any)
	if !ok {
		return want(false, at, "an object")
	}
	for _, name := range slices.Sorted(maps.Keys(o.must)) {
		if err := o.must[name](at+"."+name, fields[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.may)) {
		v, there := fields[name]
		if !there || v == nil && !o.noNulls {
			continue
		}
		if err := o.may[name](at+"."+name, v); err != nil {
			return err
		}
	}
	return nil
}

// The bodies of generation 1. OpenCode 1.18.33, measured.
var (
	ruleForm = object{must: map[string]form{"permission": aText, "pattern": aText, "action": oneOf("allow", "deny", "ask")}}

	createForm = object{noNulls: true, may: map[string]form{
		"parentID": anID("ses"), "title": aText, "agent": aText, "metadata": anObject, "permission": listOf(ruleForm.check),
		"model": object{must: map[string]form{"id": aText, "providerID": aText}, may: map[string]form{"variant": aText}}.check,
	}}
	forkForm   = object{noNulls: true, may: map[string]form{"messageID": anID("msg")}}
	updateForm = object{may: map[string]form{"title": aText, "metadata": anObject, "permission": listOf(ruleForm.check),
		"time": object{may: map[string]form{"archived": aNumber}}.check}}
	promptForm = object{must: map[string]form{"parts": listOf(partForm)}, may: map[string]form{
		"messageID": anID("msg"), "agent": aText, "noReply": aBool, "system": aText, "variant": aText, "tools": anObject,
		"format": anObject, "model": modelForm.check}}
	modelForm   = object{must: map[string]form{"providerID": aText, "modelID": aText}}
	commandForm = object{must: map[string]form{"command": aText, "arguments": aText},
		may: map[string]form{"messageID": anID("msg"), "agent": aText, "model": aText, "variant": aText}}
	shellForm = object{must: map[string]form{"agent": aText, "command": aText},
		may: map[string]form{"messageID": anID("msg"), "model": modelForm.check}}
	initForm      = object{must: map[string]form{"modelID": aText, "providerID": aText, "messageID": anID("msg")}}
	summarizeForm = object{must: map[string]form{"providerID": aText, "modelID": aText}}
	revertForm    = object{must: map[string]form{"messageID": anID("msg")}, may: map[string]form{"partID": anID("prt")}}
	secondForm    = object{must: map[string]form{"prompt": object{must: map[string]form{"text": aText}}.check},
		may: map[string]form{"id": anID("msg_"), "delivery": oneOf("steer", "queue"), "resume": aBool}}
	decisions    = oneOf("once", "always", "reject")
	replyForm    = object{must: map[string]form{"reply": decisions}, may: map[string]form{"message": aText}}
	responseForm = object{must: map[string]form{"response": decisions}}
	answersForm  = object{must: map[string]form{"answers": listOf(listOf(aText))}}
)

// partForms are what parts of a prompt may be, by their type.
var partForms = map[string]object{
	"text":    {must: map[string]form{"text": aText}},
	"file":    {must: map[string]form{"mime": aText, "url": aText}, may: map[string]form{"filename": aText}},
	"agent":   {must: map[string]form{"name": aText}},
	"subtask": {must: map[string]form{"prompt": aText, "description": aText, "agent": aText}},
}

func partForm(at string, v any) error {
	part, _ := v.(map[string]any)
	typ, _ := part["type"].(string)
	o, ok := partForms[typ]
	if !ok {
		return want(false, at, "a part of type text, file, agent or subtask")
	}
	if id, there := part["id"]; there && id != nil {
		if err := anID("prt")(at+".id", id); err != nil {
			return err
		}
	}
	return o.check(at, v)
}

// errMedia is a body that does not say that it is JSON, but something else.
var errMedia = errors.New("the Content-Type is not application/json")

// take reads the body of a route of generation 1 into v, if it has the form.
func (q *request) take(o object, v any) error {
	if t := q.r.Header.Get("Content-Type"); t != "" {
		if media, _, _ := mime.ParseMediaType(t); media != "application/json" {
			return errMedia
		}
	}
	data, err := q.body()
	if err != nil {
		return err
	}
	var parsed any
	if len(data) > 0 {
		if err := json.Unmarshal(data, &parsed); err != nil {
			return errBody // which the real host does not expect
		}
	}
	if err := o.check("the body", parsed); err != nil {
		return err
	}
	return into(data, v)
}

// into decodes what has the form. What fails yet is in a field that differs in case, or in an object.
func into(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return &badRequest{"Payload", err.Error()}
	}
	return nil
}

// takeLoose is take for the two routes of generation 1 that read their body by themselves: it may be missing,
// and whatever is wrong with it has one short answer.
func (q *request) takeLoose(o object, v any) error {
	q.loose = true
	data, err := q.body()
	if err != nil {
		return err
	}
	var parsed any = map[string]any{}
	if len(data) > 0 && json.Unmarshal(data, &parsed) != nil {
		return errBody
	}
	if err := o.check("the body", parsed); err != nil || len(data) == 0 {
		return err
	}
	return into(data, v)
}

// body reads the whole body, without spaces round it.
func (q *request) body() ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(q.w, q.r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, errLarge
	}
	if err != nil {
		return nil, errBody
	}
	return bytes.TrimSpace(data), nil
}
