package fakehost

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/teamchan/team"
)

// tagged is an error as generation 2 and the newer parts of generation 1 send it.
func tagged(tag, message string, more map[string]any) map[string]any {
	out := map[string]any{"_tag": tag, "message": message}
	maps.Copy(out, more)
	return out
}

// named is an error as generation 1 sends it.
func named(name, message string, more map[string]any) map[string]any {
	data := map[string]any{"message": message}
	maps.Copy(data, more)
	return map[string]any{"name": name, "data": data}
}

// failure returns the status and the body for err.
func (q *request) failure(err error) (int, any) {
	if q.h.profile.v1() && !q.second {
		return q.failureV1(err)
	}
	missing, _ := errors.AsType[*NotFoundError](err)
	conflict, _ := errors.AsType[*ConflictError](err)
	bad, _ := errors.AsType[*team.InvalidError](err)
	refused, _ := errors.AsType[*badRequest](err)
	switch {
	case q.second && errors.Is(err, errBody):
		return http.StatusInternalServerError, named("UnknownError", err.Error(), map[string]any{"ref": newRef()})
	case q.second && errors.Is(err, errBadID):
		return http.StatusBadRequest, tagged("InvalidRequestError", err.Error(), map[string]any{"field": "sessionID"})
	case refused != nil:
		return http.StatusBadRequest, tagged("InvalidRequestError", refused.why, map[string]any{"kind": refused.kind})
	case missing != nil:
		tag, field := missingTag(missing.What)
		return http.StatusNotFound, tagged(tag, missing.Error(), map[string]any{field: missing.ID})
	case conflict != nil && q.ids["formID"] != "":
		return http.StatusConflict, tagged("FormAlreadySettledError", conflict.Error(), map[string]any{"id": conflict.Resource})
	case conflict != nil:
		return http.StatusConflict, tagged("ConflictError", conflict.Error(), map[string]any{"resource": conflict.Resource})
	case bad != nil && q.ids["formID"] != "":
		return http.StatusBadRequest, tagged("FormInvalidAnswerError", bad.Error(), map[string]any{"id": q.ids["formID"]})
	case errors.Is(err, errCursor):
		return http.StatusBadRequest, tagged("InvalidCursorError", err.Error(), nil)
	case errors.Is(err, errLarge):
		return http.StatusRequestEntityTooLarge, tagged("InvalidRequestError", err.Error(), map[string]any{"kind": "Body"})
	case errors.Is(err, errBody):
		return http.StatusBadRequest, tagged("InvalidRequestError", err.Error(), map[string]any{"kind": "Body"})
	case errors.Is(err, errBadID):
		return http.StatusBadRequest, tagged("InvalidRequestError", err.Error(), map[string]any{"kind": "Params", "field": "sessionID"})
	case bad != nil:
		return http.StatusBadRequest, tagged("InvalidRequestError", bad.Error(), map[string]any{"kind": "Payload", "field": bad.What})
	case errors.Is(err, team.ErrDenied):
		return http.StatusForbidden, tagged("ForbiddenError", err.Error(), nil)
	case unavailable(err):
		return http.StatusServiceUnavailable, tagged("ServiceUnavailableError", err.Error(), map[string]any{"service": service(err)})
	case errors.Is(err, errors.ErrUnsupported):
		return http.StatusNotImplemented, tagged("NotImplementedError", err.Error(), nil)
	default:
		return http.StatusInternalServerError, tagged("UnknownError", err.Error(), map[string]any{"ref": newRef()})
	}
}

// failureV1 is failure in the forms that OpenCode 1.18.33 was seen to send; what it sends
// for a conflict was not seen.
func (q *request) failureV1(err error) (int, any) {
	missing, _ := errors.AsType[*NotFoundError](err)
	conflict, _ := errors.AsType[*ConflictError](err)
	if id := q.ids["requestID"]; conflict != nil && id != "" {
		missing = &NotFoundError{"question", id} // what is settled is not there any more
	}
	refused, _ := errors.AsType[*badRequest](err)
	switch {
	case q.loose && (refused != nil || errors.Is(err, errBody) || errors.Is(err, team.ErrInvalid)):
		return http.StatusBadRequest, map[string]any{"_tag": "BadRequest"}
	case refused != nil:
		return http.StatusBadRequest, named("BadRequest", refused.why, map[string]any{"kind": refused.kind})
	case missing != nil && (missing.What == "agent" || missing.What == "command"): // which this host does not foresee
		return http.StatusInternalServerError, named("UnknownError", missing.Error(), map[string]any{"ref": newRef()})
	case missing != nil && (missing.What == "permission" || missing.What == "question"):
		tag, _ := missingTag(missing.What)
		return http.StatusNotFound, tagged(tag, capital(missing.What)+" request not found: "+missing.ID, map[string]any{"requestID": missing.ID})
	case missing != nil:
		return http.StatusNotFound, named("NotFoundError", capital(missing.What)+" not found: "+missing.ID, nil)
	case conflict != nil && strings.HasPrefix(conflict.Resource, "ses"):
		return http.StatusConflict, tagged("SessionBusyError", conflict.Error(), map[string]any{"sessionID": conflict.Resource})
	case conflict != nil:
		return http.StatusConflict, tagged("ConflictError", conflict.Error(), map[string]any{"resource": conflict.Resource})
	case errors.Is(err, errLarge):
		return http.StatusRequestEntityTooLarge, map[string]any{"_tag": "BadRequest"}
	case errors.Is(err, errCursor), errors.Is(err, errImage):
		return http.StatusBadRequest, map[string]any{"_tag": "BadRequest"}
	case errors.Is(err, team.ErrInvalid):
		return http.StatusBadRequest, named("BadRequest", err.Error(), map[string]any{"kind": "Payload"})
	case unavailable(err):
		return http.StatusServiceUnavailable, tagged("ServiceUnavailableError", err.Error(), nil)
	case errors.Is(err, errors.ErrUnsupported):
		return http.StatusNotImplemented, tagged("NotImplementedError", err.Error(), nil)
	default:
		return http.StatusInternalServerError, named("UnknownError", err.Error(), map[string]any{"ref": newRef()})
	}
}

// service names what is not there for now.
func service(err error) string {
	if errors.Is(err, errWait) {
		return "session.wait"
	}
	return "session"
}

// unavailable reports whether the host is closed, or the client gone.
func unavailable(err error) bool {
	return errors.Is(err, team.ErrClosed) || errors.Is(err, errWait) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// missingTag returns the tag of the error that says that a thing is not there, and the field
// that has its id.
func missingTag(what string) (tag, field string) {
	switch what {
	case "session", "message", "permission", "question", "form", "agent", "skill", "command":
		field = what + "ID"
		if what == "permission" || what == "question" || what == "form" {
			field = "requestID"
		}
		return capital(what) + "NotFoundError", field
	default:
		return "NotFoundError", "id"
	}
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// newRef is what the real host writes beside the error into its own log.
func newRef() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "err_" + hex.EncodeToString(b[:])
}
