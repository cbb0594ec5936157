import Foundation

/// The built command, run to its end.
struct CommandRun {
  let status: Int32
  let output: String
  let error: String

  init(_ arguments: [String], _ environment: [String: String] = [:]) throws {
    let process = Process()
    let products = URL(filePath: ProcessInfo.processInfo.arguments[0]).deletingLastPathComponent()
    process.executableURL = products.appending(path: "imagefetch")
    process.arguments = arguments
    process.environment = environment
    let (output, error) = (Pipe(), Pipe())
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = output
    process.standardError = error
    try process.run()
    // Both are shorter than a pipe, so that neither waits for the other to be read.
    self.output = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    self.error = String(decoding: error.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    status = process.terminationStatus
  }
}
