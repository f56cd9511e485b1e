package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	agentrelay "github.com/agent-relay/agent-relay"
)

// maxNesting is how deep lists and objects may nest: far more than a config
// needs, and far less than would cost the parser time or stack.
const maxNesting = 8

// problem is one thing wrong with the file. No problem quotes a value, since
// it could be the secret.
type problem struct {
	line int
	// key is the path of the key at fault, empty if there is none.
	key string
	// text says what to do.
	text string
}

// newConfigError lists problems in the order in which they stand in the file.
func newConfigError(file string, problems []problem) *configError {
	slices.SortStableFunc(problems, func(a, b problem) int { return a.line - b.line })
	e := &configError{}
	for _, p := range problems {
		where := fmt.Sprintf("%s:%d: ", file, p.line)
		if p.key != "" {
			where += p.key + ": "
		}
		e.problems = append(e.problems, where+p.text)
	}
	return e
}

// parseConfig reads a config over the defaults. It checks syntax, keys and
// types, all that is the file's form; validate checks what the values mean.
func parseConfig(file string, data []byte) (*config, []problem) {
	c := defaultConfig()
	c.file = file
	r := &configReader{lines: c.lines}
	if root := r.parse(data); root != nil {
		r.object("", root, c.fields())
	}
	return c, r.problems
}

// fields is every key of the file and what its value sets.
func (c *config) fields() fields {
	return fields{
		"listen":          text(&c.Listen),
		"public_hosts":    texts(&c.PublicHosts),
		"tls":             object(c.TLS.fields()),
		"behind_proxy":    boolean(func(v bool) { c.BehindProxy = v }),
		"public_prefix":   text(&c.PublicPrefix),
		"ca_file":         text(&c.CAFile),
		"data_dir":        text(&c.DataDir),
		"storage":         text(&c.Storage),
		"secret":          readSecret(&c.Secret),
		"message_ttl":     duration(&c.MessageTTL),
		"lease":           duration(&c.Lease),
		"max_attempts":    integer(&c.MaxAttempts),
		"max_body_bytes":  integer(&c.MaxBodyBytes),
		"max_connections": integer(&c.MaxConnections),
		"max_queued":      integer(&c.MaxQueued),

		"max_queued_bytes": integer(&c.MaxQueuedBytes),
		"heartbeat":        duration(&c.Heartbeat),
		"rate_limit": object(fields{
			"per_agent":   integer(&c.RateLimit.PerAgent),
			"per_address": integer(&c.RateLimit.PerAddress),
		}),
		"lockout": object(fields{
			"failures": integer(&c.Lockout.Failures),
			"duration": duration(&c.Lockout.Duration),
		}),
		"hooks":           object(c.Hooks.fields()),
		"control_socket":  text(&c.ControlSocket),
		"trusted_proxies": c.readProxies,
		"agents":          c.readAgents,
		"connectors":      c.readConnectors,
		"metrics":         boolean(func(v bool) { c.Metrics = &v }),

		"require_single_use": boolean(func(v bool) { c.RequireSingleUse = v }),
		"require_agent_keys": boolean(func(v bool) { c.RequireAgentKeys = v }),
	}
}

// configReader goes through a parsed file, noting where each key stands and
// what is wrong.
type configReader struct {
	lines    map[string]int
	problems []problem
}

// field reads the value of the key at path.
type field func(r *configReader, path string, n ast.Node)

// fields maps an object's keys to what reads them.
type fields map[string]field

func (r *configReader) add(n ast.Node, path, text string) {
	r.problems = append(r.problems, problem{line: lineOf(n.GetToken()), key: path, text: text})
}

func lineOf(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 1
	}
	return t.Position.Line
}

// parse returns the file's one document, or nil if it is empty or there are
// problems.
func (r *configReader) parse(data []byte) ast.Node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if p, ok := badText(data); ok {
		r.problems = append(r.problems, p)
		return nil
	}
	tokens := lexer.Tokenize(string(data))
	if r.problems = unsupported(tokens); len(r.problems) > 0 {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.problems = append(r.problems, syntaxProblem(err))
		return nil
	}
	var root ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root != nil:
			r.add(doc.Body, "", "a config is one YAML document; remove the second one")
		default:
			root = doc.Body
		}
	}
	return root
}

// badText finds the first byte that no config holds.
func badText(data []byte) (problem, bool) {
	line := 1
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			return problem{line: line, text: "this is not UTF-8 text; save the file as UTF-8"}, true
		case c == '\n':
			line++
		case c < 0x20 && c != '\t', c == 0x7f:
			return problem{line: line, text: fmt.Sprintf("there is a control character (U+%04X); remove it", c)}, true
		}
		i += size
	}
	return problem{}, false
}

// unsupported finds YAML beyond plain keys, values and lists, none of which a
// config needs.
func unsupported(tokens token.Tokens) []problem {
	var found []problem
	refuse := func(t *token.Token, text string) {
		found = append(found, problem{line: lineOf(t), text: text})
	}
	nesting, dashes, dashLine := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType:
			refuse(t, "anchors and aliases are not read here; write the value out, or put it in quotes")
		case token.MergeKeyType:
			refuse(t, "merge keys (<<) are not read here; write the values out")
		case token.TagType, token.DirectiveType:
			refuse(t, "tags and directives are not read here; remove it, or put the value in quotes")
		case token.MappingKeyType:
			refuse(t, "complex keys (?) are not read here; write key: value")
		case token.MappingStartType, token.SequenceStartType:
			nesting++
		case token.MappingEndType, token.SequenceEndType:
			nesting--
		case token.SequenceEntryType:
			if lineOf(t) != dashLine {
				dashes, dashLine = 0, lineOf(t)
			}
			dashes++
		}
		if nesting > maxNesting || dashes > maxNesting {
			refuse(t, "this nests deeper than any config does; remove brackets or dashes")
			return found
		}
	}
	return found
}

// syntaxProblem makes the parser's error a problem. The parser's own text
// shows the lines around the fault, which may hold the secret, and quotes keys.
func syntaxProblem(err error) problem {
	p := problem{line: 1, text: "this is not valid YAML"}
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) {
		p.line = lineOf(syntax.Token)
		p.text += ": " + withoutQuotes(syntax.Message)
	}
	return p
}

// withoutQuotes cuts a message before the first quoted text of more than a few
// characters.
func withoutQuotes(message string) string {
	if at := strings.IndexByte(message, '"'); at >= 0 && len(message)-at > len(`"x" is a reserved character`) {
		return strings.TrimSpace(message[:at])
	}
	return message
}

// object reads the keys of one object. A value of nothing at all leaves the
// defaults.
func (r *configReader) object(path string, n ast.Node, f fields) {
	r.each(path, n, func(key, at string, keyNode, value ast.Node) {
		read, known := f[key]
		if !known {
			r.add(keyNode, showKey(path, key), "there is no such key; the keys here are "+strings.Join(sortedKeys(f), ", "))
			return
		}
		if value.Type() != ast.NullType {
			read(r, at, value)
		}
	})
}

// each calls visit with every key of an object and its path, once.
func (r *configReader) each(path string, n ast.Node, visit func(key, at string, keyNode, value ast.Node)) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.add(n, path, "write keys and values here, such as key: value")
		return
	}
	for entries := m.MapRange(); entries.Next(); {
		keyNode := entries.Key()
		name, ok := keyNode.(*ast.StringNode)
		if !ok {
			r.add(keyNode, path, "a key must be text; put it in quotes")
			continue
		}
		at := joinPath(path, name.Value)
		if first, twice := r.lines[at]; twice {
			r.add(keyNode, showKey(path, name.Value), fmt.Sprintf("this key stands at line %d already; keep one of them", first))
			continue
		}
		r.lines[at] = lineOf(keyNode.GetToken())
		visit(name.Value, at, keyNode, entries.Value())
	}
}

// joinPath appends a key to a path.
func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// showKey is joinPath for a key that does not belong there: the start of it is
// enough, and cannot be a whole secret.
func showKey(path, key string) string {
	if agentrelay.ValidName(key) && len(key) < minSecretLength {
		return joinPath(path, key)
	}
	return joinPath(path, fmt.Sprintf("%.12q", key))
}

func sortedKeys(f fields) []string {
	var keys []string
	for key := range f {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func object(f fields) field {
	return func(r *configReader, path string, n ast.Node) { r.object(path, n, f) }
}
