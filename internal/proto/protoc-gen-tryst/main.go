// The command protoc-gen-tryst is protoc-gen-go with one change: the generated
// files register in the Files and Types of the package that the parameter
// "registry" names, not in protobuf's global registries. Package registry
// says why.
//
// It writes the stock generator's output and adds one line to each of the two
// builders in it. The generator is that of the protobuf module in go.mod, so
// an update of the module that changes the builders fails here, at
// generation, and not in a user's program.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"

	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
)

func main() {
	var flags flag.FlagSet
	registry := flags.String("registry", "", "import path of the package with Files and Types")
	protogen.Options{ParamFunc: flags.Set}.Run(func(gen *protogen.Plugin) error {
		if *registry == "" {
			return errors.New("the parameter registry is missing: give the import path of the package with Files and Types")
		}
		gen.SupportedFeatures = internal_gengo.SupportedFeatures
		gen.SupportedEditionsMinimum = internal_gengo.SupportedEditionsMinimum
		gen.SupportedEditionsMaximum = internal_gengo.SupportedEditionsMaximum
		for _, file := range gen.Files {
			if !file.Generate {
				continue
			}
			if err := generate(gen, file, protogen.GoImportPath(*registry)); err != nil {
				return fmt.Errorf("%s: %w", file.Desc.Path(), err)
			}
		}
		return nil
	})
}

// generate writes one file with both builders bound to the registry.
func generate(gen *protogen.Plugin, file *protogen.File, registry protogen.GoImportPath) error {
	stock := internal_gengo.GenerateFile(gen, file)
	src, err := stock.Content()
	if err != nil {
		return err
	}
	stock.Skip()

	out := gen.NewGeneratedFile(file.GeneratedFilenamePrefix+".pb.go", file.GoImportPath)
	src, err = bind(src, out.QualifiedGoIdent(registry.Ident("Types")), out.QualifiedGoIdent(registry.Ident("Files")))
	if err != nil {
		return err
	}
	_, err = out.Write(src)
	return err
}

// bind puts the two registries, Go expressions, into the builders of a
// generated file. A file with another number of builders than one of each is
// an error: left as it is, it would register globally.
func bind(src []byte, types, files string) ([]byte, error) {
	for _, edit := range []struct{ builder, field, value string }{
		{"protoimpl.TypeBuilder{\n", "TypeRegistry", types},
		{"protoimpl.DescBuilder{\n", "FileRegistry", files},
	} {
		if n := bytes.Count(src, []byte(edit.builder)); n != 1 {
			return nil, fmt.Errorf("the stock generator's output has %q %d times, not once: its form has changed", edit.builder, n)
		}
		line := fmt.Sprintf("%s%s: %s,\n", edit.builder, edit.field, edit.value)
		src = bytes.Replace(src, []byte(edit.builder), []byte(line), 1)
	}
	return src, nil
}
