package ops

func arithmeticOps() []entry {
	var entries []entry
	add := func(signature, types string, names ...string) {
		for _, name := range names {
			entries = append(entries, entry{name + signature + types, newBinary(name)})
		}
	}
	const same = "(x: T, y: T) -> (z: T); T: number"
	add(same, "", "Add", "Sub", "Div", "RealDiv", "FloorDiv", "TruncateDiv", "DivNoNan", "Pow", "Mod", "FloorMod", "TruncateMod",
		"Maximum", "Minimum", "Atan2", "MulNoNan")
	add(same, "; commutative; aggregate", "AddV2")
	add(same, "; commutative", "Mul", "SquaredDifference", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
	return append(entries, fillOps()...)
}
