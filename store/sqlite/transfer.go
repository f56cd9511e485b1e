package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// record is one line of an export. Lines of an older relay have seq and message
// alone.
type record struct {
	Agent *struct {
		Name       string `json:"name"`
		Registered bool   `json:"registered"`
		LastSeen   int64  `json:"lastSeen"` // Unix milliseconds
	} `json:"agent"`
	Message   *agentrelay.Message `json:"message"`
	ExpiresAt int64               `json:"expiresAt"` // Unix milliseconds
	Notice    bool                `json:"notice"`
}

// Export writes agents and messages of the store in dir, which a broker may be
// using, as JSON, a line each. Leases are not in it: what is leased is queued.
// Messages whose body was erased are left out, and so are damaged ones, which
// are an error at the end. progress is told how many of how many are written.
func Export(ctx context.Context, dir string, w io.Writer, progress func(done, all int64)) error {
	path := filepath.Join(dir, databaseFile)
	if err := checkApplication(ctx, path); err != nil {
		return err
	}
	db := sql.OpenDB(newConnector(path, append([]setting{{"query_only", "ON", "1"}}, plainSettings...)))
	defer db.Close()
	out := bufio.NewWriter(w)
	if err := exportAgents(ctx, db, out); err != nil {
		return err
	}
	return errors.Join(exportMessages(ctx, db, out, progress), out.Flush())
}

func exportAgents(ctx context.Context, db *sql.DB, out *bufio.Writer) error {
	rows, err := db.QueryContext(ctx, `SELECT name, registered_at IS NOT NULL, last_seen FROM agents ORDER BY name`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var registered bool
		var seen int64
		if err := rows.Scan(&name, &registered, &seen); err != nil {
			return err
		}
		b := agentrelay.AppendString([]byte(`{"agent":{"name":`), name)
		b = strconv.AppendBool(append(b, `,"registered":`...), registered)
		b = strconv.AppendInt(append(b, `,"lastSeen":`...), seen, 10)
		if _, err := out.Write(append(b, '}', '}', '\n')); err != nil {
			return err
		}
	}
	return rows.Err()
}

func exportMessages(ctx context.Context, db *sql.DB, out *bufio.Writer, progress func(done, all int64)) error {
	var all int64
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM messages`).Scan(&all); err != nil {
		return err
	}
	stmt, err := db.PrepareContext(ctx, inspectQuery)
	if err != nil {
		return err
	}
	defer stmt.Close()
	done, damaged := int64(0), 0
	for after := int64(0); ; {
		rows, err := collect(stmt, noByteLimit, after, inspectChunk)
		if err != nil {
			return err
		}
		for _, r := range rows {
			after = r.seq
			done++
			switch {
			case r.Body == nil:
			case !r.intact():
				damaged++
			default:
				if err := exportMessage(out, r); err != nil {
					return err
				}
			}
		}
		progress(done, max(all, done))
		if len(rows) < inspectChunk {
			break
		}
	}
	if damaged > 0 {
		return fmt.Errorf("%d messages are damaged and were left out", damaged)
	}
	return nil
}

func exportMessage(out *bufio.Writer, r *row) error {
	m := r.Message
	if m.Status == agentrelay.StatusLeased {
		m.Status = agentrelay.StatusQueued
	}
	text, err := m.MarshalJSON()
	if err != nil {
		return err
	}
	b := append([]byte(`{"message":`), text...)
	b = strconv.AppendInt(append(b, `,"expiresAt":`...), r.expiresAt, 10)
	b = strconv.AppendBool(append(b, `,"notice":`...), r.notice)
	_, err = out.Write(append(b, '}', '\n'))
	return err
}

// Imported is what Import did.
type Imported struct {
	Agents, Messages int
	// Known counts messages that were there already.
	Known int
}

// maxLine bounds a line of an import.
const maxLine = 128 << 20

// Import reads what Export wrote, or the messages.jsonl of an older relay, into
// the store in dir, which no broker uses and which is made if need be. It does
// all of it or nothing. A message whose id is known stays as it is; the others
// come after those that are there, in their order. ttl is how long those live
// that do not say.
func Import(ctx context.Context, dir string, r io.Reader, ttl time.Duration, now time.Time) (Imported, error) {
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return Imported{}, err
	}
	// The writer's connection is used alone: nobody else writes.
	done, err := s.importAll(ctx, r, ttl, now)
	return done, errors.Join(err, s.Close())
}

func (s *Store) importAll(ctx context.Context, r io.Reader, ttl time.Duration, now time.Time) (done Imported, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	// What was read cannot be read again, should the writer try again.
	var failed error
	err = s.write(context.WithoutCancel(ctx), func(t *tx) error {
		if failed == nil {
			failed = t.importLines(ctx, lines, ttl, now, &done)
		}
		return failed
	})
	return done, err
}

func (t *tx) importLines(ctx context.Context, lines *bufio.Scanner, ttl time.Duration, now time.Time, done *Imported) error {
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.importLine(line, ttl, now, done); err != nil {
			return fmt.Errorf("line %d: %w; nothing was imported", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what is to be imported: %w; nothing was imported", err)
	}
	return t.exec(countAgain)
}

func (t *tx) importLine(line []byte, ttl time.Duration, now time.Time, done *Imported) error {
	var rec record
	if err := json.Unmarshal(line, &rec); err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	switch {
	case rec.Agent != nil:
		return t.importAgent(&rec, done)
	case rec.Message != nil:
		return t.importMessage(&rec, ttl, now, done)
	}
	return errors.New("it has neither an agent nor a message")
}

func (t *tx) importAgent(rec *record, done *Imported) error {
	a := rec.Agent
	if !agentrelay.ValidName(a.Name) {
		return fmt.Errorf("%.80q is no agent's name", a.Name)
	}
	registered := sql.NullInt64{Int64: max(a.LastSeen, 1), Valid: a.Registered}
	done.Agents++
	return t.exec(`INSERT INTO agents (name, registered_at, last_seen) VALUES (?1, ?2, ?3)
		ON CONFLICT (name) DO UPDATE SET registered_at = COALESCE(registered_at, ?2), last_seen = max(last_seen, ?3)`,
		a.Name, registered, a.LastSeen)
}

func (t *tx) importMessage(rec *record, ttl time.Duration, now time.Time, done *Imported) error {
	m := *rec.Message
	if m.Type == "" {
		m.Type = agentrelay.TypeMessage
	}
	if m.Kind == "" {
		m.Kind = agentrelay.KindMessage
	}
	if m.Body == nil {
		m.Body = json.RawMessage(`{}`)
	}
	if m.TS.IsZero() {
		m.TS = now
	}
	if err := checkImported(&m); err != nil {
		return err
	}
	expires := rec.ExpiresAt
	if expires <= m.TS.UnixMilli() {
		expires = m.TS.Add(ttl).UnixMilli()
	}
	switch m.Status {
	case agentrelay.StatusDone, agentrelay.StatusFailed:
	default:
		// An expired one is found to be so by the next sweep.
		m.Status = agentrelay.StatusQueued
	}
	position, err := t.nextPosition(m.To)
	if err != nil {
		return err
	}
	sum := m.Fingerprint()
	n, err := t.change(`INSERT INTO messages (id, sender, recipient, ts, type, kind, ack, reply_to, root_id, parent_id,
			body, fingerprint, status, attempts, first_position, position, delivered_at, error, expires_at, due_at, notice)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		m.ID, m.From, m.To, m.TS.UnixMilli(), string(m.Type), string(m.Kind), m.Ack, m.ReplyTo, m.RootID, m.ParentID,
		[]byte(m.Body), sum[:], string(m.Status), m.Attempts, position, position, nullable(m.DeliveredAt), m.Error, expires, expires, rec.Notice)
	if n == 0 {
		done.Known++
	} else {
		done.Messages++
	}
	return err
}

// checkImported refuses what no broker would have accepted.
func checkImported(m *agentrelay.Message) error {
	switch {
	case !agentrelay.WellFormedID(m.ID):
		return fmt.Errorf("%.80q is no message id", m.ID)
	case !agentrelay.ValidName(m.From), !agentrelay.ValidName(m.To):
		return fmt.Errorf("%.80q or %.80q is no agent's name", m.From, m.To)
	case m.Type != agentrelay.TypeMessage && m.Type != agentrelay.TypeAck:
		return fmt.Errorf("%.80q is no type of message", m.Type)
	case m.Kind != agentrelay.KindMessage && m.Kind != agentrelay.KindRequest && m.Kind != agentrelay.KindReply:
		return fmt.Errorf("%.80q is no kind of message", m.Kind)
	case m.Attempts < 0:
		return errors.New("attempts are negative")
	}
	return nil
}
