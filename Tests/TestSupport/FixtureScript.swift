package import Foundation
import Glibc

/// Runs scripts of Tests/Fixtures with Debian's Python, which has Pillow.
package enum FixtureScript {
  /// Returns the script's output.
  /// - Throws: If it can't be started or exits with a failure.
  package static func run(_ name: String, _ arguments: String...) throws -> Data {
    let script =
      String(#filePath.dropLast("TestSupport/FixtureScript.swift".count)) + "Fixtures/\(name)"
    let words = ["/usr/bin/python3", script] + arguments
    let command = words.map { "'" + $0.replacing("'", with: "'\\''") + "'" }.joined(separator: " ")
    guard let pipe = popen(command, "r") else { throw CocoaError(.executableLoad) }
    var output = Data()
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while case let count = fread(&buffer, 1, buffer.count, pipe), count > 0 {
      output.append(contentsOf: buffer.prefix(count))
    }
    guard pclose(pipe) == 0 else { throw CocoaError(.executableLoad) }
    return output
  }
}
