import Foundation
import TestSupport

/// Runs the built command until it ends.
struct CommandRun {
  let status: Int32
  let output: String
  let error: String

  init(_ arguments: [String], _ environment: [String: String] = [:]) throws {
    let error = Pipe()
    let ended = try ChildProcess.run(
      [RunningService.executable] + arguments,
      environment: environment.merging(Sanitizer.environment) { $1 }, input: Data(),
      errors: .pipe(error))
    (status, output) = (ended.status, ended.text)
    self.error = String(decoding: error.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
  }
}
