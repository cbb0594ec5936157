import Foundation
import TestSupport
import Testing

/// Follows the README with a service and an origin on their own ports.
final class ReadmeVisitor {
  let origin: ScriptedOrigin
  private let folder: String
  private let place: String
  /// The documented addresses, and the real ones in this test.
  private var addresses: [(shown: String, real: String)]
  private(set) var service: RunningService?

  /// The file that keeps the shell's variables and functions from block to block.
  private var state: String { folder + "/shell" }

  /// - Parameters:
  ///   - folder: The folder of the service and of the shell's state.
  ///   - place: The folder in which commands run; the repository's root by default.
  init(folder: String, place: String = Readme.root) throws {
    self.folder = folder
    self.place = place
    origin = try ScriptedOrigin()
    addresses = [("127.0.0.1:9000", "127.0.0.1:\(origin.port)")]
  }

  /// Replaces a site on the internet by the origin.
  func replace(_ site: String, by pages: [String: ScriptedReply]) {
    for (path, reply) in pages { origin.on(path, reply) }
    // Before the origin's other name, which pages and commands contain, too.
    addresses.insert((site, origin.url("")), at: 0)
  }

  /// Replaces the S3 bucket `avatars` and a receiver by the real ones.
  func replace(bucket: TestBucket, receiver: Int) {
    addresses += [
      ("127.0.0.1:9100", "127.0.0.1:\(bucket.port)"), ("bucket: avatars", "bucket: \(bucket.name)"),
      ("127.0.0.1:9200", "127.0.0.1:\(receiver)"),
    ]
  }

  /// Writes a documented program to the folder in which commands run.
  func save(_ program: Readme.Program) async throws {
    if service == nil { try await start(Self.onLoopback) }
    let text = try here(program.text)
    try text.write(toFile: "\(place)/\(program.name)", atomically: true, encoding: .utf8)
  }

  /// Returns a documented text with the real addresses.
  func here(_ text: String) throws -> String {
    let service = try #require(service)
    return (addresses + [("http://127.0.0.1:8080", service.base)])
      .reduce(text) { $0.replacing($1.shown, with: $1.real) }
  }

  /// Runs a step's commands and compares their output with the documented one.
  func follow(_ step: Readme.Step) async throws {
    if step.commands.contains("-m http.server") {
      let pattern = #/python3 -m http.server 9000 --bind 127.0.0.1 --directory (\S+)/#
      try servePictures(String(#require(step.commands.wholeMatch(of: pattern)).1))
    } else if step.commands.wholeMatch(of: #/git clone .* && make run/#) != nil {
      try await start(Self.onLoopback)
    } else if step.commands == "make run ARGS=--dev" {
      try await start([:], ["--dev"])
    } else if let match = step.commands.wholeMatch(
      of: #/IMAGEFETCH_DESTINATIONS='([^']+)' make run ARGS=--dev/#)
    {
      let settings = [
        "IMAGEFETCH_DESTINATIONS": try here(String(match.1)),
        "AWS_ACCESS_KEY_ID": ObjectStore.accessKey,
        "AWS_SECRET_ACCESS_KEY": ObjectStore.secretKey,
      ]
      try await start(settings, ["--dev"])
    } else {
      if service == nil { try await start(Self.onLoopback) }
      let output = try await run(step.commands)
      guard let answer = step.answer else { return }
      let differences = answer.differences(from: output)
      #expect(differences.isEmpty, "\(step.commands)\n\(differences.joined(separator: "\n"))")
    }
  }

  /// Allows loopback, where the replaced sites are.
  private static let onLoopback = [
    "IMAGEFETCH_FETCH_ALLOW_NETWORKS": "127.0.0.1/32", "IMAGEFETCH_FETCH_ALLOW_PORTS": "",
  ]

  /// Stops the service and the origin.
  func leave() async throws {
    origin.stop()
    if let service { #expect(try await service.stop() == 0) }
  }

  /// Serves the files of a folder in the repository from the origin, instead of Python's server.
  func servePictures(_ folder: String) throws {
    let path = Readme.root + folder
    for name in try FileManager.default.contentsOfDirectory(atPath: path) {
      let bytes = try #require(FileManager.default.contents(atPath: "\(path)/\(name)"))
      origin.on("/\(name)", .ok(Array(bytes)))
    }
  }

  /// Replaces the running service by one with the same data, started in the repository's root.
  private func start(_ settings: [String: String], _ arguments: [String] = []) async throws {
    let before = service?.base
    if let service { #expect(try await service.stop() == 0) }
    service = nil
    // The default values, unless the commands set others.
    let rules = [
      "IMAGEFETCH_FETCH_ALLOW_NETWORKS": "", "IMAGEFETCH_FETCH_ALLOW_PORTS": "80,443",
    ]
    service = try await RunningService(
      folder: folder, settings: rules.merging(settings) { $1 }, arguments: arguments,
      directory: Readme.root)
    guard let before, let after = service?.base else { return }
    // The documented service keeps its port, which shell variables may contain.
    let held = try String(contentsOfFile: state, encoding: .utf8)
    try held.replacing(before, with: after).write(toFile: state, atomically: true, encoding: .utf8)
  }

  /// The folder that contains `imagefetch`.
  private static var programs: String {
    URL(filePath: RunningService.executable).deletingLastPathComponent().path
  }

  /// Runs commands. The shell's variables and functions are kept from block to block.
  func run(_ commands: String) async throws -> String {
    let script = """
      set -a; exec 2>&1; PATH='\(Self.programs)':$PATH; [ ! -f '\(state)' ] || . '\(state)'
      \(try here(commands))
      { export -p; declare -f; } > '\(state)'
      """
    let output = try await Shell.run(script, in: place)
    let shown = addresses + [("http://127.0.0.1:8080", try #require(service).base)]
    return shown.reduce(output) { $0.replacing($1.real, with: $1.shown) }
  }
}

/// Runs the body with a visitor whose service and origin are stopped afterwards.
///
/// - Parameter inFolder: Whether commands run in an empty folder (`place`) and not in the repository's root.
func withVisitor(
  inFolder: Bool = false, _ body: (ReadmeVisitor, _ place: String) async throws -> Void
) async throws {
  let folder = try RunningService.makeFolder()
  defer { try? FileManager.default.removeItem(atPath: folder) }
  let place = inFolder ? folder : Readme.root
  let visitor = try ReadmeVisitor(folder: folder, place: place)
  do {
    try await body(visitor, place)
  } catch {
    try? await visitor.leave()
    throw error
  }
  try await visitor.leave()
}
