import Foundation
import TestSupport
import Testing

/// Does as the README says, with a service and an origin on ports of their own.
final class ReadmeVisitor {
  private let folder: String
  private let root: String
  private let origin: ScriptedOrigin
  private var service: RunningService?

  /// Where variables and functions of the shell are kept from block to block.
  private var state: String { folder + "/shell" }

  /// - Parameters:
  ///   - folder: for the service's data.
  ///   - root: where commands are run.
  init(folder: String, root: String = Readme.root) throws {
    (self.folder, self.root) = (folder, root)
    origin = try ScriptedOrigin()
  }

  /// Runs a step's commands, and compares what they print with what is shown.
  func follow(_ step: Readme.Step) async throws {
    if step.commands.contains("-m http.server") {
      try serve(asIn: step.commands)
    } else if let line = step.commands.wholeMatch(of: #/(.*)make run/#) {
      try await start(settings(String(line.1)))
    } else {
      if service == nil { try await start([:]) }
      let output = try await run(step.commands)
      guard let answer = step.answer else { return }
      let differences = answer.differences(from: output)
      #expect(differences.isEmpty, "\(step.commands)\n\(differences.joined(separator: "\n"))")
    }
  }

  /// Stops the service and the origin.
  func leave() async throws {
    origin.stop()
    if let service { #expect(try await service.stop() == 0) }
  }

  /// A folder's files, from an origin of ours in place of Python's.
  private func serve(asIn command: String) throws {
    let pattern = #/python3 -m http.server 9000 --bind 127.0.0.1 --directory (\S+)/#
    let match = try #require(command.wholeMatch(of: pattern))
    try serveFiles(String(match.1))
  }

  /// The files of a folder of the repository.
  func serveFiles(_ name: String) throws {
    let path = Readme.root + name
    for name in try FileManager.default.contentsOfDirectory(atPath: path) {
      let bytes = try #require(FileManager.default.contents(atPath: "\(path)/\(name)"))
      origin.on("/\(name)", .ok(Array(bytes)))
    }
  }

  /// The variables that stand before a command.
  private func settings(_ text: String) throws -> [String: String] {
    var settings: [String: String] = [:]
    for assignment in text.split(separator: " ") {
      let parts = assignment.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      try #require(parts.count == 2)
      settings[String(parts[0])] = String(parts[1])
    }
    return settings
  }

  /// Starts the service in place of the one before, on the same data.
  private func start(_ settings: [String: String]) async throws {
    let before = service?.base
    if let service { #expect(try await service.stop() == 0) }
    service = nil
    // The defaults, where the commands say nothing else.
    let rules = [
      "IMAGEFETCH_FETCH_ALLOW_NETWORKS": "", "IMAGEFETCH_FETCH_ALLOW_PORTS": "80,443",
    ]
    var chosen = rules.merging(settings) { $1 }
    // The reader stands in the root of the repository, this process anywhere.
    let images = "IMAGEFETCH_SOURCES_LOCAL_ROOT"
    if let path = chosen[images], !path.hasPrefix("/") { chosen[images] = Readme.root + path }
    service = try await RunningService(folder: folder, settings: chosen)
    guard let before, let after = service?.base else { return }
    // The visitor's service keeps its port, which variables may hold.
    let held = try String(contentsOfFile: state, encoding: .utf8)
    try held.replacing(before, with: after).write(toFile: state, atomically: true, encoding: .utf8)
  }

  /// Runs commands in the root of the repository; variables and functions live on from block to
  /// block.
  private func run(_ commands: String) async throws -> String {
    let service = try #require(service)
    let addresses = [
      ("127.0.0.1:9000", "127.0.0.1:\(origin.port)"),
      ("http://127.0.0.1:8080", service.base),
    ]
    var commands = commands
    for (shown, real) in addresses { commands.replace(shown, with: real) }
    let script = """
      set -a; exec 2>&1; PATH='\(Self.programs)':$PATH; [ ! -f '\(state)' ] || . '\(state)'
      \(commands)
      { export -p; declare -f; } > '\(state)'
      """
    var output = try await bash(script)
    for (shown, real) in addresses { output.replace(real, with: shown) }
    return output
  }

  /// Where `imagefetch` is.
  private static var programs: String {
    URL(filePath: RunningService.executable).deletingLastPathComponent().path
  }

  private func bash(_ script: String) async throws -> String {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["timeout", "60", "bash", "-c", script]
    process.currentDirectoryURL = URL(filePath: root)
    let pipe = Pipe()
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = pipe
    try process.run()
    // A thread of its own reads: the shared ones must not wait for a command.
    let data = await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        continuation.resume(returning: pipe.fileHandleForReading.readDataToEndOfFile())
      }
    }
    return String(decoding: data, as: UTF8.self)
  }
}
