package sources

import (
	"bytes"
	"errors"

	"go.yaml.in/yaml/v3"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// ReadCluster reads a file that has a cluster alone: in the form of the setting cluster, or as the value of that key in a
// YAML file of settings. The file ends with a line feed, so that one that is half written is not taken for a smaller
// cluster, and has a task. The errors name the file and the line.
func ReadCluster(path string) (*cluster.Spec, error) { return clusterIn(path, readFile) }

func clusterIn(path string, read func(string) ([]byte, error)) (*cluster.Spec, error) {
	data, err := read(path)
	switch {
	case err != nil:
		return nil, status.Errorf(status.InvalidArgument, "%w", err)
	case len(data) > maxFile:
		return nil, status.Errorf(status.InvalidArgument, "%s: it is larger than %s; is it a file of a cluster?", path, config.FormatSize(maxFile))
	case len(bytes.TrimSpace(data)) == 0:
		return nil, status.Errorf(status.InvalidArgument, "%s: it is empty; write a cluster, such as worker=h1:2222,h2:2222", path)
	case !bytes.HasSuffix(data, []byte("\n")):
		return nil, status.Errorf(status.InvalidArgument, "%s: it does not end with a line feed, so it may be half written; rename a complete file onto it", path)
	}
	f := file{name: path}
	text := f.clusterText(data)
	if len(f.errs) > 0 {
		return nil, errors.Join(f.errs...)
	}
	spec, err := cluster.ParseSpec(text)
	if err == nil && spec.Len() == 0 {
		err = status.New(status.InvalidArgument, "it has no tasks; write a cluster, such as worker=h1:2222,h2:2222")
	}
	if err != nil {
		return nil, status.From(err).WithPrefix(path)
	}
	return spec, nil
}

// clusterText returns the cluster in the document of a file as the text of a cluster spec.
func (f *file) clusterText(data []byte) string {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		f.refused(0, err)
		return ""
	}
	if len(document.Content) == 0 { // only comments
		return ""
	}
	root := resolve(document.Content[0])
	var value any // the decoder also refuses anchors that contain themselves or multiply
	if err := root.Decode(&value); err != nil {
		f.refused(root.Line, err)
		return ""
	}
	switch root.Kind {
	case yaml.MappingNode:
		text, _ := f.cluster(root)
		return text
	case yaml.ScalarNode:
		if isNull(root) {
			return ""
		}
		return root.Value
	}
	f.fail(root.Line, "want a cluster: worker=h1:2222,h2:2222, or jobs with their addresses")
	return ""
}
