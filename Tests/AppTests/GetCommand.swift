import Foundation
import Synchronization
import TestSupport
import Testing

/// A running `imagefetch get`.
final class GetCommand: Sendable {
  private let process: ChildProcess
  private let input: Pipe
  private let output: Collected
  private let errors: Collected

  /// The output of a pipe so far. Its own thread reads it, because shared threads must not wait for a
  /// process.
  private final class Collected: Sendable {
    private let state = Mutex((data: Data(), isWhole: false))

    init(_ pipe: Pipe) {
      let handle = pipe.fileHandleForReading
      Thread.detachNewThread { [self] in
        while true {
          let data = handle.availableData
          state.withLock { state in
            state.data += data
            state.isWhole = data.isEmpty
          }
          if data.isEmpty { return }
        }
      }
    }

    var data: Data { state.withLock { $0.data } }
    var isWhole: Bool { state.withLock { $0.isWhole } }
  }

  /// The result of a run.
  struct Result {
    var status: Int32
    var output: Data
    var errors: String

    /// The fields of standard output's lines.
    var lines: [[String]] {
      String(decoding: output, as: UTF8.self).split(separator: "\n")
        .map { $0.split(separator: "\t", omittingEmptySubsequences: false).map(String.init) }
    }
  }

  /// The command as a shell would start it, without arguments.
  static var command: [String] { [RunningService.executable, "get"] }

  /// - Parameters:
  ///   - folder: The working directory.
  ///   - command: A program that runs the command, if it is not run directly.
  init(
    _ arguments: [String], in folder: String, settings: [String: String] = [:],
    command: [String] = GetCommand.command
  ) throws {
    var environment = ProcessInfo.processInfo.environment
    environment["IMAGEFETCH_FETCH_ALLOW_NETWORKS"] = "127.0.0.1/32"
    environment["IMAGEFETCH_FETCH_ALLOW_PORTS"] = ""
    environment["SWIFT_BACKTRACE"] = "enable=no"
    environment.merge(settings) { $1 }
    let (standardOutput, standardError) = (Pipe(), Pipe())
    input = Pipe()
    process = try ChildProcess(
      command + arguments, environment: environment, in: folder, input: .pipe(input),
      output: .pipe(standardOutput), errors: .pipe(standardError))
    output = Collected(standardOutput)
    errors = Collected(standardError)
  }

  /// The standard output so far.
  var outputSoFar: String { String(decoding: output.data, as: UTF8.self) }

  var isRunning: Bool { process.isRunning }

  /// Writes a part of the list on its own thread, because it waits for the command to read.
  func write(_ text: String) async throws {
    let handle = input.fileHandleForWriting
    let failure = await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        do {
          try handle.write(contentsOf: Data(text.utf8))
          continuation.resume(returning: (any Error)?.none)
        } catch {
          continuation.resume(returning: error)
        }
      }
    }
    if let failure { throw failure }
  }

  /// Closes the list.
  func endList() throws { try input.fileHandleForWriting.close() }

  func signal(_ signal: Int32) { process.signal(signal) }

  /// Waits for the end of the run.
  func ended() async throws -> Result {
    // The longest list takes some minutes on a busy machine.
    let deadline = ContinuousClock.now + .seconds(280)
    while process.isRunning || !output.isWhole || !errors.isWhole {
      guard ContinuousClock.now < deadline else {
        process.signal(SIGKILL)
        throw Unended(output: outputSoFar, errors: String(decoding: errors.data, as: UTF8.self))
      }
      try await Task.sleep(for: .milliseconds(5))
    }
    return Result(
      status: process.wait(), output: output.data,
      errors: String(decoding: errors.data, as: UTF8.self))
  }

  struct Unended: Error { let output, errors: String }

  /// Runs the command with a complete list until it ends.
  static func run(
    _ arguments: [String], in folder: String, list: String = "", settings: [String: String] = [:],
    command: [String] = GetCommand.command
  ) async throws -> Result {
    let command = try GetCommand(arguments, in: folder, settings: settings, command: command)
    if !list.isEmpty { try await command.write(list) }
    try command.endList()
    return try await command.ended()
  }
}

/// Runs the body with a temporary folder.
func inFolder(_ body: (String) async throws -> Void) async throws {
  let folder = try RunningService.makeFolder()
  defer { try? FileManager.default.removeItem(atPath: folder) }
  try await body(folder)
}

extension FileManager {
  /// The sorted names in a folder.
  func names(in folder: String) throws -> [String] {
    try contentsOfDirectory(atPath: folder).sorted()
  }
}
