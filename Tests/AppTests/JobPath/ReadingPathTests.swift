import Foundation
import Glibc
import TestSupport
import Testing

/// Limits how much code a newcomer reads to follow a job, so that an increase is noticed.
///
/// docs/reading-path.txt lists the Swift files with functions that a job enters, from `POST` to `success`, in the order
/// of their first entry. With UPDATE_READING_PATH=1 the test writes the list instead of comparing it.
@Suite("The code that a job enters", .timeLimit(.minutes(5)))
struct ReadingPathTests {
  /// The limits of the files and of the functions. If a change lowers a count, lower its limit. A job enters 1,749
  /// functions on an idle machine and more on a busy one.
  static let (mostFiles, mostFunctions) = (139, 1_960)
  /// Jobs run until this many were quick. During a slow job, functions of periodic work are entered too, but not during
  /// every job.
  static let (quickJobs, mostJobs) = (5, 25)
  private static let quick = Duration.milliseconds(300)

  private static let hint =
    "UPDATE_READING_PATH=1 make test FILTER=ReadingPathTests writes the new list."
  private static let list = Readme.root + "docs/reading-path.txt"

  @Test(
    "a job enters only the files of docs/reading-path.txt, and no more functions than the limit",
    .disabled(if: Sanitizer.isHere, "a sanitizer adds code to each function"),
    .enabled(if: FunctionTrace.isPossible, "tracing decoder processes needs CAP_SYS_PTRACE"))
  func path() async throws {
    var jobs = try await Self.measure()
    let periodic = Set(jobs.removeLast().map(\.file))
    // Other work of the service only adds functions, so what all jobs entered is exact.
    let common = jobs.dropFirst().reduce(into: Set(jobs[0])) { $0.formIntersection($1) }
    let functions = jobs[0].filter(common.contains)
    let files = functions.map(\.file).uniqued()
    let modules = Dictionary(grouping: functions, by: \.module)
    for (module, functions) in modules.sorted(by: { $0.key < $1.key }) {
      print("\(module): \(Set(functions.map(\.file)).count) files, \(functions.count) functions")
    }
    print("together: \(files.count) files, \(functions.count) functions")
    if ProcessInfo.processInfo.environment["UPDATE_READING_PATH"] == "1" {
      let text = files.joined(separator: "\n") + "\n"
      try text.write(toFile: Self.list, atomically: true, encoding: .utf8)
    }
    let listed = Readme.file("docs/reading-path.txt").split(separator: "\n").map(String.init)
    // On a busy machine every job takes long enough for some periodic work.
    let added = Set(files).subtracting(listed).subtracting(periodic)
    #expect(added == [], "Join files that are read together. \(Self.hint)")
    let removed = Set(listed).subtracting(jobs.joined().map(\.file))
    #expect(removed == [], "Lower the limits. \(Self.hint)")
    #expect(listed.count <= Self.mostFiles)
    #expect(functions.count <= Self.mostFunctions)
  }

  /// Runs jobs one after the other on a service that has finished a first one, so that nothing is still created on
  /// first use. Each has another origin and another image.
  ///
  /// - Returns: For each job, the functions in the order of their first entry. The last element has those
  ///   that are entered while no job runs.
  private static func measure() async throws -> [[EnteredFunction]] {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let trace = try await FunctionTrace(folder: folder)
    let service = try await RunningService(
      folder: folder, settings: trace.settings, program: BuiltProgram.path("FunctionTrace"))
    let port = try #require(URL(string: service.base)?.port)
    var times: [Duration] = []
    for number in 0...mostJobs where times.filter({ $0 < quick }).count < quickJobs {
      let origin = try ScriptedOrigin()
      defer { origin.stop() }
      origin.on("/image", .ok(Fixtures.smallJPEG + [UInt8(number)], type: "image/jpeg"))
      if number > 0 { try await trace.start(in: service) }
      let client = try #require(PlainClient(port: port))
      let start = ContinuousClock.now
      _ = try #require(client.post(url: origin.url("/image")))
      try await eventually { service.log.matches(of: #/"phase":"success"/#).count > number }
      if number > 0 {
        times.append(ContinuousClock.now - start)
        try await trace.stop(in: service)
      }
    }
    let isQuick = times.filter { $0 < quick }.count == quickJobs
    try await trace.start(in: service)
    // A service that is slow needs more than one period of its slowest work, which runs every five seconds.
    try await Task.sleep(for: .seconds(isQuick ? 0.1 : 7))
    try await trace.stop(in: service)
    #expect(try await service.stop() == 0)
    return try await trace.functions()
  }
}

/// A function or closure of Sources/.
private struct EnteredFunction: Hashable {
  /// The path of its file from the repository's folder.
  var file: String
  var line: Int

  var module: String { String(file.split(separator: "/")[1]) }
}

/// Finds the functions that the service enters in a time, by Tests/FunctionTrace.
private struct FunctionTrace {
  let settings: [String: String]
  private let folder: String
  private let program = BuiltProgram.path("imagefetch")
  private let entries: String

  /// Whether this process may trace processes that are not dumpable.
  static var isPossible: Bool {
    let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let capabilities = status.firstMatch(of: #/CapEff:\s*(\w+)/#)?.1 ?? ""
    let tracing = 19
    return (UInt64(capabilities, radix: 16) ?? 0) >> tracing & 1 == 1
  }

  init(folder: String) async throws {
    (self.folder, entries) = (folder, folder + "/entries")
    settings = [
      "TRACED_PROGRAM": program, "TRACED_FUNCTIONS": folder + "/functions",
      "TRACED_ENTRIES": entries,
    ]
    _ = try await Shell.run(
      "nm '\(program)' | awk '/ [tT] \\$s/ { print $1 }' >functions", in: folder)
  }

  func start(in service: RunningService) async throws {
    let before = marks("set")
    kill(service.processIdentifier, SIGUSR1)
    try await eventually { marks("set") > before }
  }

  /// Waits until no function was entered for 100 ms, because the job's last steps follow its log line.
  func stop(in service: RunningService) async throws {
    var (last, since) = (text.utf8.count, 0)
    try await eventually {
      try await Task.sleep(for: .milliseconds(5))
      let now = text.utf8.count
      (last, since) = (now, now == last ? since + 1 : 0)
      return since >= 10
    }
    let before = marks("removed")
    kill(service.processIdentifier, SIGUSR2)
    try await eventually { marks("removed") > before }
  }

  /// - Returns: For each time, the functions in the order of their first entry.
  func functions() async throws -> [[EnteredFunction]] {
    let runs = text.split(separator: "start\n").map {
      $0.split(separator: "\n").compactMap { UInt64($0, radix: 16) }
    }
    let addresses = Set(runs.joined()).sorted()
    let input = addresses.map { String($0, radix: 16) }.joined(separator: "\n") + "\n"
    try input.write(toFile: folder + "/addresses", atomically: true, encoding: .utf8)
    let answer = try await Shell.run("addr2line -f -e '\(program)' <addresses", in: folder)
    let lines = answer.split(separator: "\n").map(String.init)
    try #require(lines.count == 2 * addresses.count)
    var sources: [String: [Substring]] = [:]
    var found: [UInt64: EnteredFunction] = [:]
    for (index, address) in addresses.enumerated() {
      found[address] = function(symbol: lines[2 * index], place: lines[2 * index + 1], &sources)
    }
    return runs.map { $0.compactMap { found[$0] }.uniqued() }
  }

  /// - Returns: Nil for code of other packages, for code that the compiler wrote, and for the parts of an async function
  ///   after an `await`.
  private func function(
    symbol: String, place: String, _ sources: inout [String: [Substring]]
  ) -> EnteredFunction? {
    guard let match = place.firstMatch(of: #/^(.+):(\d+)/#), let line = Int(match.2), line > 0,
      match.1.hasPrefix(Readme.root + "Sources/"), symbol.firstMatch(of: #/T[QY]\d+_$/#) == nil
    else { return nil }
    let file = String(match.1.dropFirst(Readme.root.count))
    if sources[file] == nil {
      sources[file] = Readme.file(file).split(separator: "\n", omittingEmptySubsequences: false)
    }
    guard let text = sources[file]?[line - 1], isWritten(String(text)) else { return nil }
    return EnteredFunction(file: file, line: line)
  }

  /// Whether the line begins a function or closure. Functions that the compiler made begin at a type or a stored
  /// property.
  private func isWritten(_ line: String) -> Bool {
    let type = #/^\s*([@\w]+ )*(struct|enum|class|actor|extension) /#
    return line.firstMatch(of: type) == nil
      && line.firstMatch(of: #/\{|\b(func|init|deinit|subscript)\b/#) != nil
  }

  private var text: String { (try? String(contentsOfFile: entries, encoding: .utf8)) ?? "" }

  private func marks(_ name: String) -> Int { text.split(separator: "\n").count { $0 == name } }
}

extension Sequence where Element: Hashable {
  /// The elements in order, each once.
  fileprivate func uniqued() -> [Element] {
    var seen: Set<Element> = []
    return filter { seen.insert($0).inserted }
  }
}
