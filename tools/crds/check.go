package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	strict "sigs.k8s.io/yaml"
)

// kind is what an object says that it is.
type kind struct{ version, kind string }

// types returns an empty object of each kind that is checked here.
func types() map[kind]any {
	return map[kind]any{
		{"cert-manager.io/v1", "Certificate"}:          new(certmanager.Certificate),
		{"cert-manager.io/v1", "Issuer"}:               new(certmanager.Issuer),
		{"cert-manager.io/v1", "ClusterIssuer"}:        new(certmanager.ClusterIssuer),
		{"monitoring.coreos.com/v1", "ServiceMonitor"}: new(monitoring.ServiceMonitor),
		{"monitoring.coreos.com/v1", "PodMonitor"}:     new(monitoring.PodMonitor),
		{"monitoring.coreos.com/v1", "PrometheusRule"}: new(monitoring.PrometheusRule),
	}
}

// check returns how many objects of a manifest are of those kinds, and what is wrong.
func check(manifest []byte) (checked int, faults []error) {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return checked, faults
		}
		if err != nil {
			return checked, append(faults, err)
		}
		custom, err := checkOne(text)
		if custom {
			checked++
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
}

// checkOne tells whether an object is of a kind of another project, and what is wrong with it.
func checkOne(text []byte) (custom bool, err error) {
	var head struct {
		metav1.TypeMeta
		Metadata struct{ Name string }
	}
	if err := strict.Unmarshal(text, &head); err != nil {
		return false, err
	}
	if head.Kind == "" || builtIn(head.APIVersion) {
		return false, nil
	}
	name := head.Kind + " " + head.Metadata.Name
	object, ok := types()[kind{head.APIVersion, head.Kind}]
	if !ok {
		return true, fmt.Errorf("%s: there is no type of %s here; add it to tools/crds", name, head.APIVersion)
	}
	if err := read(text, object); err != nil {
		return true, fmt.Errorf("%s: %w", name, err)
	}
	if missing := missing(object); len(missing) > 0 {
		return true, fmt.Errorf("%s: required, and not there: %s", name, strings.Join(missing, ", "))
	}
	return true, nil
}

// read decodes an object as the server of Kubernetes does under strict validation: the case of names counts, which it does not
// in encoding/json.
func read(text []byte, object any) error {
	data, err := strict.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(data, object)
	return errors.Join(append(unknown, err)...)
}

// builtIn tells whether a version is of Kubernetes itself: its groups have no dot, or end with .k8s.io.
func builtIn(apiVersion string) bool {
	group, _, ok := strings.Cut(apiVersion, "/")
	return !ok || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
