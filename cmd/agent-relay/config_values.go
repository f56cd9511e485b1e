package main

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// textOf returns a text value. Numbers, true and false are not text unless
// quoted: 0123 and 1e5 would not mean what they look like.
func (r *configReader) textOf(path string, n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.NullNode:
		r.add(n, path, "must be text; put it in quotes")
	default:
		r.add(n, path, "must be text, not a list or an object")
	}
	return "", false
}

func text(to *string) field {
	return func(r *configReader, path string, n ast.Node) {
		if s, ok := r.textOf(path, n); ok {
			*to = s
		}
	}
}

// readSecret reads the secret. Hexadecimal digits may look like a number; what
// counts is how they are written.
func readSecret(to *secretText) field {
	return func(r *configReader, path string, n ast.Node) {
		switch n.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			*to = secretText(n.GetToken().Value)
			return
		}
		text((*string)(to))(r, path, n)
	}
}

// textsOf returns a list of texts.
func (r *configReader) textsOf(path string, n ast.Node) (list []string) {
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		r.add(n, path, "must be a list, such as [a, b]")
		return nil
	}
	list = []string{}
	for i, value := range sequence.Values {
		at := path + "[" + strconv.Itoa(i) + "]"
		r.lines[at] = lineOf(value.GetToken())
		if s, ok := r.textOf(at, value); ok {
			list = append(list, s)
		}
	}
	return list
}

func texts(to *[]string) field {
	return func(r *configReader, path string, n ast.Node) {
		*to = r.textsOf(path, n)
	}
}

func duration(to *time.Duration) field {
	return func(r *configReader, path string, n ast.Node) {
		var d time.Duration
		s, ok := n.(*ast.StringNode)
		err := errors.New("not a string")
		if ok {
			d, err = time.ParseDuration(s.Value)
		}
		if err != nil {
			r.add(n, path, "must be a duration with its unit, such as 90s, 10m or 168h")
			return
		}
		*to = d
	}
}

func integer[T int | int64](to *T) field {
	return func(r *configReader, path string, n ast.Node) {
		if node, ok := n.(*ast.IntegerNode); ok {
			switch v := node.Value.(type) {
			case uint64:
				if v <= math.MaxInt32 {
					*to = T(v)
					return
				}
			case int64:
				if v >= math.MinInt32 {
					*to = T(v)
					return
				}
			}
			r.add(n, path, "is out of range; write a smaller number")
			return
		}
		r.add(n, path, "must be a whole number")
	}
}

// boolean reads what may also be left open.
func boolean(set func(bool)) field {
	return func(r *configReader, path string, n ast.Node) {
		node, ok := n.(*ast.BoolNode)
		if !ok {
			r.add(n, path, "must be true or false")
			return
		}
		set(node.Value)
	}
}
