package fakehost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/teamchan/team/fakehost"
)

// A client that knows OpenCode 1.18 talks to the host over HTTP.
func ExampleHost_Handler() {
	host, err := fakehost.Open(context.Background(), "", &fakehost.Options{Profile: fakehost.V1_18, Agents: []fakehost.Agent{
		{Name: "build", Script: func(_ context.Context, t *fakehost.Turn) (string, error) { return "you said: " + t.Text(), nil }},
	}})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(host.Handler())
	defer server.Close()
	defer host.Close() // first: it ends the streams

	post := func(path, body string, answer any) {
		res, err := http.Post(server.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
			log.Fatal(err)
		}
	}
	var session struct{ ID string }
	post("/session", `{"title": "lead"}`, &session)
	var message struct {
		Parts []struct{ Type, Text string }
	}
	post("/session/"+session.ID+"/message", `{"parts": [{"type": "text", "text": "hello"}]}`, &message)
	for _, p := range message.Parts {
		if p.Type == "text" {
			fmt.Println(p.Text)
		}
	}
	// Output: you said: hello
}
