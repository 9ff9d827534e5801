package verbstransport_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// proof names the tests of a behaviour: "package Test", with the package's path from the
// root of the module, or "package Test/Group/Case" for the suite of all transports.
// TestListsAreTrue checks that they exist.
type proof struct {
	number int
	what   string
	tests  []string
}

const here = "transport/verbs"

// conformance lists the required behaviours of a verbs transport that TensorFlow's
// extension had no test for: V1 to V26.
var conformance = []proof{
	{1, "layout and round trip of every message type", []string{
		"internal/wire TestV1EveryKindIsAsProtocolWritesIt", "internal/wire TestV1FieldsComeBack", "internal/wire TestV1EveryByteCounts",
		"internal/wire FuzzParse",
	}},
	{2, "META on first use and on change only", []string{here + " TestV02MetaOnFirstUseAndOnChange", "internal/channel TestV2MetaOnlyAtFirstAndOnChange"}},
	{3, "a steady state of one request and one content", []string{
		here + " TestV03SteadyStateOfALargeTensor", "internal/channel TestV3SteadyStateIsOneRequestAndItsWrites",
		"internal/channel TestSteadyStateAllocatesNothing", "transport/verbs/internal/regmem TestATensorIsFoundWhateverItsSize",
	}},
	{4, "a dead value has no bytes and keeps its place", []string{
		here + " TestV04V05NoContentTakesNoMemory", "internal/channel TestV4DeadValue", here + " TestSuiteRequired/Content/DeadKeepsTheOrder",
	}},
	{5, "an empty tensor needs no memory region", []string{
		here + " TestV04V05NoContentTakesNoMemory", "internal/channel TestV5EmptyTensorNeedsNoMemory", here + " TestSuiteRequired/Content/NoElements",
	}},
	{6, "strings: empty ones, none, longer than 2^16", []string{
		here + " TestSuiteRequired/Content/Strings", here + " TestSuiteRequired/Content/LargeString", "internal/channel TestV6StringsGoAsProto",
	}},
	{7, "a size that shrinks and grows", []string{
		here + " TestSuiteRequired/Size/ChangingUnderOneKey", here + " TestShapeThatChangesEveryStep", "internal/channel TestV7ValueShrinksAndGrows",
	}},
	{8, "0 to 254 dimensions", []string{here + " TestSuiteRequired/Content/Dimensions", "internal/wire TestV8Dims0To254"}},
	{9, "a key of more than 512 bytes", []string{here + " TestV09LongKeys", "internal/channel TestV9LongKeyFallsBack"}},
	{10, "another incarnation is Aborted at the receiver", []string{
		here + " TestV10OtherIncarnation", "internal/channel TestV10RequestNamesTheIncarnation", here + " TestSuite/Peer/OtherIncarnation",
	}},
	{11, "a step aborted at the sender: its status, and the process lives", []string{
		here + " TestV11StepAbortedAtTheSender", "internal/channel TestV11StepAbortedAtTheSender", here + " TestSuiteRequired/Abort/AtTheSenderInMidTransfer",
	}},
	{12, "cancelled or aborted by the receiver, with a late write", []string{
		here + " TestV12CancelWhileWritesLand", here + " TestCancelOfMoreThanMayBeInQuarantine",
		"internal/channel TestV12DestinationIsHeldUntilConfirmed", here + " TestSuiteRequired/Abort/AtTheReceiverInMidTransfer",
	}},
	{13, "slot and generation wrap with requests outstanding", []string{
		here + " TestV13SlotsAndGenerationsWrap", "internal/channel TestV13SlotsAndGenerationsWrap", "internal/channel TestV13StaleImmClosesTheChannel",
	}},
	{14, "more requests outstanding than the queue is deep", []string{
		here + " TestV14ManyMoreRequestsThanTheWindow", "internal/channel TestV14MoreRequestsThanTheWindow",
	}},
	{15, "a peer killed in the midst of a write: Unavailable in a bounded time", []string{
		here + " TestSuite/Peer/GoneInMidTransfer", "internal/channel TestV15BreakGivesBackWhatHasNotEnded",
		"integration/verbs TestRxeSenderKilledMidWriteAndRestarted",
	}},
	{16, "a peer that restarts is connected again", []string{
		here + " TestSuite/Peer/RestartedWhileWaiting", here + " TestSuite/Peer/RestartedInBetween", here + " TestSuite/Peer/RequesterRestarted",
		"server TestVerbsServerMeetsARestartedPeer", "internal/bootstrap TestRestartedPeer",
	}},
	{17, "any order of starts, a slow peer", []string{
		here + " TestV17SlowPeer", "internal/bootstrap TestStartInAnyOrder", "server TestVerbsServersMeetInAnyOrder", "integration/verbs TestRxeStartInAnyOrder",
	}},
	{18, "no RDMA device: gRPC", []string{"server TestVerbsWithoutADevice", "server TestVerbsServerAndAPeerWithoutVerbs"}},
	{19, "a memlock limit: a clear error", []string{
		here + " TestV19MemlockTooSmall", "transport/verbs/internal/regmem TestMemlockIsFoundOutBeforeAnythingIsRegistered", "verbs/cgo TestMemlockIsToldWithItsNumbers",
		"integration/verbs TestRxeMemlockTooSmall",
	}},
	{20, "a message that comes while the channel is made is not lost", []string{
		"internal/channel TestV20MessageBeforeOwnReadyIsNotLost", "internal/handshake TestSimulationSearch",
	}},
	{21, "tensors of over 2 and over 4 GiB", []string{
		here + " TestV21LargerThan4GiB", "internal/channel TestV21ContentOver4GiB", "transport/verbs/internal/regmem TestATensorOfMoreThan4GiB",
	}},
	{22, "an error text of 1 MiB is cut validly", []string{
		here + " TestSuiteRequired/Abort/LongTextIsShortened", "internal/channel TestV22LongErrorTextIsCut", "internal/wire TestV22ErrorText",
	}},
	{23, "both spellings of the environment", []string{"internal/config/sources TestBothSpellings", "internal/config/sources TestInheritedValuesAreJudged"}},
	{24, "an MTU equal to the active one", []string{"internal/discovery TestPathMTUMayEqualTheActiveOne"}},
	{25, "an update in place during a send is not torn", []string{here + " TestV25InPlaceUpdateDuringASend"}},
	{26, "two steps at once with different shapes for one key", []string{
		here + " TestV26TwoStepsWithTwoShapesForOneKey", "internal/channel TestV26TwoShapesForOneKeyAtOnce", "integration/verbs TestRxeShapesOfOneKey",
	}},
}

// faults lists 30 faults of TensorFlow 1.10's extension, and the tests that this
// transport does not have them.
var faults = []proof{
	{1, "a bad completion ends the requests of its peer alone", []string{here + " TestHostilePeer", here + " TestVerbsCutWhileGRPCLives", here + " TestSuite/Peer/OthersGoOn"}},
	{2, "an error of the receive at the sender is sent", []string{here + " TestV11StepAbortedAtTheSender", here + " TestSuiteRequired/Abort/CodesArrive"}},
	{3, "what is stale is dropped, by its generation", []string{here + " TestHostilePeer", "internal/channel TestHostileMessages"}},
	{4, "an abort and a cancel end receives", []string{
		here + " TestSuiteRequired/Abort/AtTheReceiverWhileWaiting", here + " TestSuiteRequired/Cancel/WhileTheConnectionHangs", here + " TestAThousandCancelsBeyondTheWindow",
	}},
	{5, "a late write lands in memory that is still the transport's", []string{here + " TestV12CancelWhileWritesLand", here + " TestCancelOfMoreThanMayBeInQuarantine"}},
	{6, "completion queues have an entry for every work request", []string{here + " TestQueuesHaveRoomForABreak", "verbs/verbstest TestOverrun"}},
	{7, "a queue is polled until it is empty", []string{"transport/verbs/internal/progress TestTokenInEveryOrder", "transport/verbs/internal/progress TestEverythingIsHandledOnceInOrderByOneAtATime"}},
	{8, "callbacks run elsewhere than completions", []string{here + " TestSuite/Callback/Blocks", here + " TestSuite/Callback/Receives", here + " TestValuesThatDependOnLaterRequests"}},
	{9, "a peer that restarts is a new incarnation", []string{here + " TestSuite/Peer/RestartedWhileWaiting", "server TestVerbsServerMeetsARestartedPeer"}},
	{10, "peers come and go", []string{"server TestVerbsClientReceives", here + " TestSuite/Peer/StartsAfterItsRequester"}},
	{11, "a bootstrap that fails is told, and tried again, never as a storm", []string{here + " TestV17SlowPeer", "internal/handshake TestNeverAStorm", "internal/bootstrap TestStartInAnyOrder"}},
	{12, "the length of keys is checked", []string{here + " TestV09LongKeys", "internal/wire TestV1EveryByteCounts"}},
	{13, "every byte that is sent was written", []string{"internal/wire TestV1EveryKindIsAsProtocolWritesIt"}},
	{14, "dimensions are numbers on the wire", []string{here + " TestSuiteRequired/Content/Dimensions", "internal/wire TestV8Dims0To254"}},
	{15, "a refused registration is an error that names RLIMIT_MEMLOCK", []string{
		here + " TestV19MemlockTooSmall", "transport/verbs/internal/regmem TestAttachTellsWhatCannotBeRegisteredAndLeavesNothing",
	}},
	{16, "memory that is given back is not looked at again", []string{"transport/verbs/internal/regmem TestMemoryGoesBackToTheSystem", "transport/verbs/internal/regmem TestALargeTensorHasAnArenaOfItsOwnThatIsReusedAndGivenBack"}},
	{17, "the end of a tensor's memory is looked at, too", []string{"transport/verbs/internal/regmem TestFindLooksAtTheEnd"}},
	{18, "no hook in another allocator: what lies elsewhere is copied once", []string{"transport/verbs/internal/regmem TestATensorOfOurOwnMemoryIsFoundAndAnyOtherCopiedOnce"}},
	{19, "large contents are cut into writes", []string{here + " TestV21LargerThan4GiB", here + " TestV03SteadyStateOfALargeTensor"}},
	{20, "a bad bootstrap is answered, and TLS proves the name", []string{
		"internal/bootstrap TestNothingInAMessageStopsAProcess", "internal/bootstrap TestWithMutualTLSTheNameIsTheCertificates", "internal/bootstrap FuzzRequest",
	}},
	{21, "indices that wrap skip what is in use", []string{here + " TestV13SlotsAndGenerationsWrap"}},
	{22, "a response that goes while others have it", []string{here + " TestSuiteRequired/Cancel/RacingTheValue", "internal/channel TestSimulationSearch", "internal/channel TestPlaceTooLate"}},
	{23, "the cache of meta-data is bounded, its entries copies", []string{"internal/channel TestMetasAreBounded", here + " TestV26TwoStepsWithTwoShapesForOneKey"}},
	{24, "a text is cut before it is written", []string{"internal/channel TestV22LongErrorTextIsCut", here + " TestSuiteRequired/Abort/LongTextIsShortened"}},
	{25, "there are tests", []string{here + " TestSuite", here + " TestSuiteRequired", here + " TestRxeSuite"}},
	{26, "one reader of completions from the start", []string{"internal/channel TestV20MessageBeforeOwnReadyIsNotLost"}},
	{27, "memory of serialised values is given back", []string{here + " TestStringsThatChangeAndFail"}},
	{28, "in-place updates tear nothing", []string{here + " TestV25InPlaceUpdateDuringASend"}},
	{29, "a failed registration fails one request", []string{here + " TestV19MemlockTooSmall", here + " TestPoolIsEmpty", "transport/verbs/internal/regmem TestARefusedRegistrationIsNotTriedWithEachTensor"}},
	{30, "the GID entry itself is looked at", []string{"internal/discovery TestChooseTellsItsReasons", "internal/discovery TestReadEmptyGIDs", "internal/config/sources TestGIDIndexZero"}},
}

// TestListsAreTrue: the lists are complete, and every test that they name exists.
func TestListsAreTrue(t *testing.T) {
	packages := make(map[string]map[string]bool)
	for list, l := range map[string]struct {
		proofs []proof
		count  int
	}{"conformance": {conformance, 26}, "faults": {faults, 30}} {
		if len(l.proofs) != l.count {
			t.Errorf("%s has %d entries, want %d", list, len(l.proofs), l.count)
		}
		for i, p := range l.proofs {
			if p.number != i+1 || len(p.tests) == 0 {
				t.Errorf("entry %d of %s is number %d, with %d tests", i+1, list, p.number, len(p.tests))
			}
			for _, named := range p.tests {
				if why := missing(t, packages, named); why != "" {
					t.Errorf("%s %d (%s): %s", list, p.number, p.what, why)
				}
			}
		}
	}
	for number := 1; number <= len(conformance); number++ {
		prefix := fmt.Sprintf("TestV%02d", number)
		for name := range packages[here] {
			if strings.HasPrefix(name, prefix) && !slices.Contains(conformance[number-1].tests, here+" "+name) {
				t.Errorf("%s is not in the list", name)
			}
		}
	}
}

// missing returns why there is no such test; "" when there is one.
func missing(t *testing.T, packages map[string]map[string]bool, named string) string {
	t.Helper()
	pkg, test, ok := strings.Cut(named, " ")
	if !ok {
		return named + " does not name a package and a test"
	}
	test, sub, isSuite := strings.Cut(test, "/")
	if !names(t, packages, pkg, "_test.go")[test] {
		return "there is no " + test + " in " + pkg
	}
	if !isSuite {
		return ""
	}
	group, name, _ := strings.Cut(sub, "/")
	for _, part := range []string{group, name} {
		if !names(t, packages, "internal/transporttest", ".go")[strconv.Quote(part)] {
			return "the suite has no " + strconv.Quote(part)
		}
	}
	return ""
}

// names returns the functions of a package's files, and the string literals in them,
// quoted.
func names(t *testing.T, packages map[string]map[string]bool, pkg, suffix string) map[string]bool {
	t.Helper()
	if packages[pkg] != nil {
		return packages[pkg]
	}
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*"+suffix))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", pkg, err)
	}
	found := make(map[string]bool)
	for _, f := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				found[n.Name.Name] = true
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					found[n.Value] = true
				}
			}
			return true
		})
	}
	packages[pkg] = found
	return found
}
