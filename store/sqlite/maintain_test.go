package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// closedStore is the directory of a store with messages m0 to m19, of which m0
// is leased, m1 acknowledged and m2 handed over.
func closedStore(t *testing.T) (dir, epoch string) {
	t.Helper()
	dir = t.TempDir()
	s, _, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Register(t.Context(), "alpha"); err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, 0, 20)
	_, leaseErr := s.Lease(t.Context(), store.LeaseRequest{Agent: "beta", Limit: 1, MaxBytes: 1 << 20, For: time.Hour})
	_, ackErr := s.Acknowledge(t.Context(), store.Acknowledgement{Agent: "beta", ID: "m1"})
	deliveredErr := s.Delivered(t.Context(), []string{"m2"}, time.Now())
	epoch = s.Epoch()
	if err := errors.Join(leaseErr, ackErr, deliveredErr, s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, epoch
}

func TestBackupAndRestore(t *testing.T) {
	dir, epoch := closedStore(t)
	file := filepath.Join(t.TempDir(), "copy.db")
	s, _, err := openDamaged(t, dir) // as a broker has it
	if err != nil {
		t.Fatal(err)
	}
	want, err := inboxOf(t, s)
	if err != nil || len(want) != 18 {
		t.Fatal(len(want), err)
	}
	if err := Backup(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	if err := Backup(t.Context(), dir, file); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a second copy to the same file: %v", err)
	}
	if _, err := Restore(t.Context(), file, dir, time.Now()); !errors.Is(err, ErrInUse) {
		t.Errorf("restoring under a broker: %v", err)
	}
	sendTo(t, s, 20, 25)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kept, err := Restore(t.Context(), file, dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Epoch() == epoch {
		t.Error("a store that was restored has the epoch it had")
	}
	if got, err := inboxOf(t, again); err != nil || len(got) != len(want) {
		t.Errorf("%d messages are there, %v, want %d", len(got), err, len(want))
	}
	before, _, err := openDamaged(t, kept)
	if err != nil {
		t.Fatalf("what was there before was not kept: %v", err)
	}
	defer before.Close()
	if got, err := inboxOf(t, before); err != nil || len(got) != len(want)+5 {
		t.Errorf("%d messages are kept, %v", len(got), err)
	}
}

func TestRestoreRefuses(t *testing.T) {
	dir, _ := closedStore(t)
	damagedDir := copyStore(t, dir)
	change(t, damagedDir, `UPDATE messages SET body = X'31' WHERE id = 'm5'`)
	other := t.TempDir()
	change(t, other, `CREATE TABLE books (title TEXT)`)
	text := filepath.Join(other, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		filepath.Join(damagedDir, databaseFile): "damaged",
		filepath.Join(other, databaseFile):      "no database of the relay",
		text:                                    "no database",
		filepath.Join(other, "none"):            "no such file",
	} {
		if _, err := Restore(t.Context(), from, dir, time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", from, err, want)
		}
	}
	if s, _, err := openDamaged(t, dir); err != nil {
		t.Errorf("a refusal left the store unusable: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := Backup(t.Context(), damagedDir, filepath.Join(t.TempDir(), "copy")); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged store is copied: %v", err)
	}
}

func TestCheck(t *testing.T) {
	dir, _ := closedStore(t)
	check := func(dir string) string {
		t.Helper()
		var d damages
		if err := Check(t.Context(), dir, d.add); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(d.all())
	}
	if found := check(dir); found != "[]" {
		t.Errorf("found %s", found)
	}
	changed := copyStore(t, dir)
	change(t, changed, `UPDATE messages SET body = X'31' WHERE id = 'm5'`)
	if found := check(changed); !strings.Contains(found, "m5") {
		t.Errorf("found %s", found)
	}
	behind := copyStore(t, dir)
	change(t, behind, `UPDATE store SET commits = commits - 1`)
	if found := check(behind); !strings.Contains(found, "missing") {
		t.Errorf("found %s", found)
	}
	if err := Check(t.Context(), t.TempDir(), func(store.Damage) {}); err == nil {
		t.Error("where there is no store, all is well")
	}
	s := openIn(t, dir)
	if err := Check(t.Context(), dir, func(store.Damage) {}); !errors.Is(err, ErrInUse) {
		t.Errorf("under a broker: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSalvage(t *testing.T) {
	dir, epoch := closedStore(t)
	keyed := openIn(t, dir)
	if _, err := keyed.AddAgent(t.Context(), "gamma", store.AgentPatch{}, store.Key{ID: "k1", Secret: "its own"}); err != nil {
		t.Fatal(err)
	}
	if err := keyed.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, dir, `UPDATE messages SET body = X'31' WHERE id IN ('m5', 'm6'); UPDATE store SET commits = commits - 3`)
	if s, _, err := openDamaged(t, dir); err == nil {
		_ = s.Close()
		t.Fatal("a store that lost commits is opened")
	}
	file := filepath.Join(t.TempDir(), "saved.db")
	saved, err := Salvage(t.Context(), dir, file)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Salvaged{Agents: 3, Messages: 19, Damaged: 2, MissingCommits: 3}); saved != want {
		t.Errorf("saved %+v, want %+v", saved, want)
	}
	if saved.Complete() {
		t.Error("what is missing is not told")
	}
	if _, err := Restore(t.Context(), file, dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	s, d, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-s.health.checked
	got, err := inboxOf(t, s)
	if err != nil || len(got) != 16 || s.Epoch() == epoch || len(d.all()) > 0 {
		t.Errorf("%d messages, %v, damaged %v", len(got), err, d.all())
	}
	agents, err := s.Agents(t.Context())
	if err != nil || len(agents) != 3 || len(agents[2].Keys) != 1 || string(agents[2].Keys[0].Secret) != "its own" {
		t.Errorf("agents %v, %v", agents, err)
	}
	page, err := s.Poll(t.Context(), store.PollQuery{Agent: "alpha", Limit: 10, MaxBytes: 1000})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].ReplyTo != "m1" {
		t.Errorf("receipts %v, %v", page.Messages, err)
	}
	sendTo(t, s, 30, 31)
}

// What cannot be read costs what stood there, and nothing else.
func TestSalvageUnreadable(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	if err := s.Register(t.Context(), "beta"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := s.Enqueue(t.Context(), messageTo("beta", fmt.Sprint("m", i), 2000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, databaseFile)
	whole, err := Salvage(t.Context(), dir, filepath.Join(t.TempDir(), "whole"))
	if err != nil || !whole.Complete() {
		t.Fatalf("%+v, %v", whole, err)
	}
	data := read(t, path)
	// Page 1 has the schema; without it nothing could be read.
	spoilt := 0
	for page := 30; page*4096 < len(data) && spoilt < 3; page += 9 {
		clear(data[page*4096 : page*4096+4096])
		spoilt++
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	saved, err := Salvage(t.Context(), dir, filepath.Join(t.TempDir(), "saved"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("with %d pages of zeros: %+v", spoilt, saved)
	if saved.Complete() || saved.Messages == 0 {
		t.Errorf("saved %+v", saved)
	}
}

func TestExportAndImport(t *testing.T) {
	dir, _ := closedStore(t)
	var out bytes.Buffer
	var last int64
	if err := Export(t.Context(), dir, &out, func(done, all int64) { last = done * 100 / all }); err != nil {
		t.Fatal(err)
	}
	if last != 100 {
		t.Errorf("the progress ends at %d %%", last)
	}
	lines := out.String()
	if strings.Contains(lines, "secret") || strings.Contains(lines, "key") {
		t.Error("keys are exported")
	}
	if strings.Contains(lines, "leaseId\":\"") {
		t.Error("a lease id is exported")
	}
	to := filepath.Join(t.TempDir(), "new")
	now := time.Now()
	done, err := Import(t.Context(), to, strings.NewReader(lines), time.Hour, now)
	if want := (Imported{Agents: 2, Messages: 21}); err != nil || done != want {
		t.Fatalf("%+v, %v, want %+v", done, err, want)
	}
	if done, err = Import(t.Context(), to, strings.NewReader(lines), time.Hour, now); err != nil || done.Known != 21 || done.Messages != 0 {
		t.Errorf("the same again: %+v, %v", done, err)
	}
	var again bytes.Buffer
	if err := Export(t.Context(), to, &again, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	if again.String() != lines {
		t.Error("what was imported is exported differently")
	}
	s, d, err := openDamaged(t, to)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := inboxOf(t, s); err != nil || len(got) != 19 {
		t.Errorf("%d messages wait, %v; want all but the one that is done", len(got), err)
	}
	if err := inspect(t.Context(), s.reader, d.add); err != nil || len(d.all()) > 0 {
		t.Errorf("damaged: %v, %v", d.all(), err)
	}
}

// TestImportOlder reads what an older relay kept: envelopes with a number.
func TestImportOlder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	const body = `{"n":12345678901234567890, "n":1,"é":"\u00e9"}`
	lines := `{"seq":1,"message":{"id":"old/1","from":"alpha","to":"beta","ts":"2026-11-30T03:59:19.172Z","type":"message","body":` + body + `,"replyTo":null,"ack":false,"kind":"message","rootId":null,"parentId":null,"status":"queued","attempts":0,"leaseUntil":null,"leaseId":null}}
{"seq":2,"message":{"id":"old/2","from":"alpha","to":"beta","body":null}}

{"seq":3,"message":{"id":"old/3","from":"alpha","to":"beta","status":"leased","leaseUntil":1796011279196,"leaseId":"x","attempts":2,"body":1}}
{"seq":4,"message":{"id":"old/4","from":"alpha","to":"beta","status":"done","body":1}}
`
	done, err := Import(t.Context(), dir, strings.NewReader(lines), 24*time.Hour, time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC))
	if err != nil || done.Messages != 4 {
		t.Fatalf("%+v, %v", done, err)
	}
	s := openIn(t, dir)
	now := s.time.clock.Now()
	if now.Before(time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)) {
		got, err := inboxOf(t, s)
		if err != nil || len(got) != 3 || got["old/1"] != body {
			t.Errorf("got %v, %v", got, err)
		}
	}
	found, err := s.Messages(t.Context(), "beta", []string{"old/1", "old/2", "old/3", "old/4"})
	if err != nil || len(found) != 4 || found["old/3"].Attempts != 2 || found["old/4"].Status != agentrelay.StatusDone {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestImportRefuses(t *testing.T) {
	good := `{"message":{"id":"good","from":"a","to":"b","body":1}}` + "\n"
	for name, line := range map[string]string{
		"no JSON":      `{"message":`,
		"nothing":      `{"seq":1}`,
		"no id":        `{"message":{"from":"a","to":"b"}}`,
		"a bad id":     `{"message":{"id":"a\nb","from":"a","to":"b"}}`,
		"no sender":    `{"message":{"id":"x","to":"b"}}`,
		"a bad name":   `{"message":{"id":"x","from":"a b","to":"b"}}`,
		"a bad type":   `{"message":{"id":"x","from":"a","to":"b","type":"x"}}`,
		"a bad kind":   `{"message":{"id":"x","from":"a","to":"b","kind":"x"}}`,
		"bad attempts": `{"message":{"id":"x","from":"a","to":"b","attempts":-1}}`,
		"a bad agent":  `{"agent":{"name":"a b"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			_, err := Import(t.Context(), dir, strings.NewReader(good+line+"\n"), time.Hour, time.Now())
			if err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), "nothing was imported") {
				t.Errorf("got %v", err)
			}
			s := openIn(t, dir)
			if found, err := s.Messages(t.Context(), "b", []string{"good"}); err != nil || len(found) != 0 {
				t.Errorf("a part was imported: %v, %v", found, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Import(ctx, filepath.Join(t.TempDir(), "new"), strings.NewReader(good), time.Hour, time.Now()); err == nil {
		t.Error("an import that was interrupted is done")
	}
	if !json.Valid([]byte(strings.TrimSpace(good))) {
		t.Error("the good line is not good")
	}
}
