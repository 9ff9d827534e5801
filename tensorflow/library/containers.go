package library

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// TensorFlow's C API cannot empty one container of a context. So a container has a generation, which a
// reset raises, and the attribute "container" of the nodes of a function has the name of the present
// generation: "localhost" at first, "localhost.reset-1" after a reset.

// defaultContainer is the name of the container of nodes that name none, as in TensorFlow.
const defaultContainer = "localhost"

// resetName matches the names that later generations have.
var resetName = regexp.MustCompile(`\.reset-[0-9]+$`)

// generations are how often each container was emptied, by its name. They do not change: a reset makes
// new ones.
type generations struct{ of map[string]int }

// next returns the generations after a reset of the named containers.
func (g *generations) next(names []string) *generations {
	n := &generations{of: map[string]int{}}
	maps.Copy(n.of, g.of)
	for _, name := range names {
		n.of[name]++
	}
	return n
}

// name returns the name that a container has in the context. Two containers never have the same: a
// client may name its own like a later generation of another.
func (g *generations) name(container string) string {
	n := g.of[container]
	if n == 0 && !resetName.MatchString(container) {
		return container
	}
	return container + ".reset-" + strconv.Itoa(n)
}

// changed returns those containers whose names in the context are not those of the client.
func (g *generations) changed(containers []string) (names []string) {
	for _, c := range containers {
		if name := g.name(c); name != c {
			names = append(names, name)
		}
	}
	return names
}

// orDefault returns the names of containers, of which "" is the default one.
func orDefault(containers []string) []string {
	names := slices.Clone(containers)
	for i, name := range names {
		if name == "" {
			names[i] = defaultContainer
		}
	}
	return names
}

// eachContainer calls f with the name of each container in the attributes of a node, and replaces it
// by the result. A node whose op is a function has none.
func (s *Set) eachContainer(n *tfpb.NodeDef, f func(string) string) {
	rename := func(name []byte) []byte {
		c := string(name)
		if c == "" {
			c = defaultContainer
		}
		if to := f(c); to != c {
			return []byte(to)
		}
		return name
	}
	for _, a := range s.ops[n.GetOp()].GetAttr() {
		old := n.GetAttr()[a.GetName()]
		switch {
		case old.GetPlaceholder() != "": // the caller of the function gives it
		case a.GetName() == "container" && a.GetType() == "string":
			if old == nil {
				old = a.GetDefaultValue()
			}
			if name := rename(old.GetS()); string(name) != string(old.GetS()) {
				setAttr(n, "container", &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: name}})
			}
		case a.GetName() == "containers" && a.GetType() == "list(string)": // of _VarHandlesOp
			list := &tfpb.AttrValue_ListValue{}
			for _, name := range old.GetList().GetS() {
				list.S = append(list.S, rename(name))
			}
			if !slices.EqualFunc(list.S, old.GetList().GetS(), bytes.Equal) {
				setAttr(n, "containers", &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: list}})
			}
		}
	}
}

func setAttr(n *tfpb.NodeDef, name string, a *tfpb.AttrValue) {
	if n.Attr == nil {
		n.Attr = map[string]*tfpb.AttrValue{}
	}
	n.Attr[name] = a
}

// containers returns the containers that the nodes of a function name, in alphabetical order.
func (s *Set) containers(functions ...*tfpb.FunctionDef) []string {
	names := map[string]bool{}
	for _, f := range functions {
		for _, n := range f.GetNodeDef() {
			s.eachContainer(n, func(name string) string { names[name] = true; return name })
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// originals returns a text of TensorFlow with the names that the client gave to the containers.
func (f *function) originals(text string) string {
	if f.generations == nil {
		return text
	}
	for _, c := range f.containers {
		text = strings.ReplaceAll(text, f.generations.name(c), c)
	}
	return text
}

// at returns the function with the names that the containers have in these generations.
func (f *function) at(s *Set, g *generations) (*function, error) {
	if len(g.changed(f.containers)) == 0 {
		return f, nil
	}
	library, err := f.library.at(s, g)
	if err != nil {
		return nil, err
	}
	def := new(tfpb.FunctionDef)
	if err := proto.Unmarshal(f.def, def); err != nil {
		return nil, err
	}
	for _, n := range def.GetNodeDef() {
		s.eachContainer(n, g.name)
		if library != f.library {
			library.rename(n)
		}
	}
	identity := f.identity
	if identity != "" {
		for _, c := range f.containers {
			identity += "\n" + g.name(c)
		}
	}
	now, err := newFunction(def, identity)
	if err != nil {
		return nil, err
	}
	now.library, now.containers, now.generations = library, f.containers, g
	now.waits, now.perStep, now.lasts = f.waits, f.perStep, f.lasts
	return now, nil
}

// at returns the library with the names that the containers have in these generations, under other
// names. The functions of a graph ask for the same one, one after another.
func (l *library) at(s *Set, g *generations) (*library, error) {
	changed := g.changed(l.containers)
	if len(changed) == 0 {
		return l, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Equal(l.nowNames, changed) {
		return l.now, nil
	}
	functions := make([]*tfpb.FunctionDef, len(l.all))
	for i, c := range l.all {
		functions[i] = new(tfpb.FunctionDef)
		if err := proto.Unmarshal(c.def, functions[i]); err != nil {
			return nil, err
		}
		for _, n := range functions[i].GetNodeDef() {
			s.eachContainer(n, g.name)
		}
	}
	now, err := newLibrary(functions, l.salt)
	if err != nil {
		return nil, err
	}
	now.containers = l.containers
	l.now, l.nowNames = now, changed
	return now, nil
}
