package config

import (
	"fmt"
	"io"
	"strings"
)

// WriteTable writes the table of settings in docs/settings.md, in Markdown.
func WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| key | flag | variable | default | values | for | description |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, s := range settings {
		values := s.Type()
		if limits := s.Limits(); limits != "" {
			values += " (" + limits + ")"
		}
		key := "–"
		if s.InFile() {
			key = code(s.Key)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n",
			key, code("--"+s.Flag()), code(strings.Join(append([]string{s.Env()}, s.Inherited()...), "`, `")), code(s.Default), values, s.Use, s.Help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
