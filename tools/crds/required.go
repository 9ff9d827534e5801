package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// missing returns the paths of the fields of an object that are required and empty. In the types of Kubernetes' kinds a field is
// optional if its tag has omitempty or omitzero.
func missing(object any) []string { return missingIn(reflect.ValueOf(object), "") }

func missingIn(v reflect.Value, path string) (all []string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return missingIn(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, missingIn(v.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
	case reflect.Struct:
		if _, ok := v.Addr().Interface().(json.Marshaler); ok { // a time, a quantity: it has its own text
			return nil
		}
		for i := range v.NumField() {
			all = append(all, missingField(v, i, path)...)
		}
	}
	return all
}

func missingField(v reflect.Value, i int, path string) []string {
	f := v.Type().Field(i)
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	tags := strings.Split(options, ",")
	switch {
	case !f.IsExported() || name == "-" || path == "" && name == "status": // the controller writes the status
		return nil
	case name == "" && (f.Anonymous || slices.Contains(tags, "inline")):
		return missingIn(v.Field(i), path)
	}
	at := strings.TrimPrefix(path+"."+name, ".")
	if v.Field(i).IsZero() {
		// A field that is false or 0 may have been set so.
		if k := v.Field(i).Kind(); slices.Contains(tags, "omitempty") || slices.Contains(tags, "omitzero") || k == reflect.Bool || v.Field(i).CanInt() {
			return nil
		}
		return []string{at}
	}
	return missingIn(v.Field(i), at)
}
