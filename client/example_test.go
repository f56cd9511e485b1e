package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// exampleRelay runs a broker for an example, where these agents are known.
func exampleRelay(agents ...string) (url, dir string, stop func()) {
	dir, err := os.MkdirTemp("", "agent-relay")
	if err != nil {
		log.Fatal(err)
	}
	r, err := openRelay(filepath.Join(dir, "broker"))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range agents {
		c := connect(r.url, name)
		if err := c.Register(context.Background()); err != nil {
			log.Fatal(err)
		}
		c.Close()
	}
	return r.url, dir, func() {
		if err := errors.Join(r.stop(), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}

// connect makes a client; a program takes the secret from its configuration.
func connect(url, agent string) *client.Client {
	c, err := client.New(client.Options{URL: url, Agent: agent, Secret: secret})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// A script that runs from cron sends under an id of its own making: however
// often it is run that day, and whatever breaks, the message is there once.
func ExampleClient_Send() {
	url, _, stop := exampleRelay("team")
	defer stop()
	ctx := context.Background()

	c := connect(url, "backup")
	defer c.Close()
	if err := c.Register(ctx); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		sent, err := c.Send(ctx, client.Outgoing{
			To:   "team",
			ID:   "backup/2026-03-14",
			Body: client.TextBody("the backup is done"),
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(sent.ID, "was there already:", sent.Duplicate)
	}
	// Output:
	// backup/2026-03-14 was there already: false
	// backup/2026-03-14 was there already: true
}

// A reader remembers in a file how far it came. The next run goes on there.
func ExampleClient_Messages() {
	url, dir, stop := exampleRelay("team", "ci")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	ci := connect(url, "ci")
	defer ci.Close()
	for _, text := range []string{"build 1 is red", "build 2 is green"} {
		if _, err := ci.Send(ctx, client.Outgoing{To: "team", Body: client.TextBody(text)}); err != nil {
			log.Fatal(err)
		}
	}

	team := connect(url, "team")
	defer team.Close()
	for m, err := range team.Messages(ctx, client.MessagesOptions{
		Progress: client.ProgressFile(filepath.Join(dir, "team.json")),
		OnAway:   func(err error, pause time.Duration) { log.Printf("%v; trying again in %v", err, pause) },
	}) {
		if errors.Is(err, context.Canceled) {
			break // as after an interrupt
		}
		if err != nil {
			log.Fatal(err)
		}
		var body struct{ Text string }
		if err := json.Unmarshal(m.Body, &body); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", m.From, body.Text)
		if body.Text == "build 2 is green" {
			cancel()
		}
	}
	// Output:
	// ci: build 1 is red
	// ci: build 2 is green
}

// A worker takes messages one by one. What its handler returns says what
// becomes of each.
func ExampleClient_Work() {
	url, _, stop := exampleRelay("resizer", "web")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	web := connect(url, "web")
	defer web.Close()
	for _, job := range []string{`{"image":"cat.png"}`, `{"image":""}`, `{"image":"last.png"}`} {
		if _, err := web.Send(ctx, client.Outgoing{To: "resizer", Body: json.RawMessage(job)}); err != nil {
			log.Fatal(err)
		}
	}

	resizer := connect(url, "resizer")
	defer resizer.Close()
	err := resizer.Work(ctx, client.WorkerOptions{
		Concurrency: 1,
		OnError:     func(err error) { log.Print(err) },
		Handle: func(ctx context.Context, m agentrelay.Message) error {
			var job struct{ Image string }
			if err := json.Unmarshal(m.Body, &job); err != nil {
				return err
			}
			switch job.Image {
			case "":
				fmt.Println("no image: the sender is told")
				return errors.New("the image is missing")
			case "cat.png":
				if m.Attempts == 0 {
					fmt.Println("cat.png: not yet")
					return client.Retry(errors.New("the disk is busy"))
				}
				defer cancel() // an interrupt would do this
			}
			fmt.Println(job.Image + ": done")
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// cat.png: not yet
	// no image: the sender is told
	// last.png: done
	// cat.png: done
}

// One agent asks another and waits for its answer.
func ExampleClient_Request() {
	url, _, stop := exampleRelay("asker", "weather")
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	weather := connect(url, "weather")
	defer weather.Close()
	serving, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- weather.Work(serving, client.WorkerOptions{
			Handle: func(ctx context.Context, m agentrelay.Message) error {
				_, err := weather.Send(ctx, client.Reply(m, json.RawMessage(`{"sunny":true}`)))
				return err
			},
		})
	}()

	asker := connect(url, "asker")
	defer asker.Close()
	reply, err := asker.Request(ctx, client.Outgoing{To: "weather", Body: json.RawMessage(`{"city":"Bremen"}`)})
	switch {
	case errors.Is(err, client.ErrUndelivered):
		fmt.Println("no answer:", err)
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Printf("%s says %s\n", reply.From, reply.Body)
	}

	end()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// weather says {"sunny":true}
}
