package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// choice adds a flag that takes one of a few words, and completes them.
func choice(cmd *cobra.Command, value *string, name, usage string, words []string) {
	cmd.Flags().Var(&chosen{value, words}, name, usage+": "+listed(words))
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// chosen is the flag's value.
type chosen struct {
	value *string
	words []string
}

func (c *chosen) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

// Set takes one of the words.
func (c *chosen) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("use %s", listed(c.words))
	}
	*c.value = text
	return nil
}

// Type names the value in a help text.
func (c *chosen) Type() string { return "word" }

// listed is a list as a sentence has it.
func listed(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
