internal import Foundation

/// Programs that the tests start.
package enum BuiltProgram {
  /// The variable that names the `imagefetch` to test instead of the one that was built with the tests. `make check-release` sets it.
  /// Its name does not start with IMAGEFETCH_, because the service rejects unknown keys.
  package static let variable = "TESTED_EXECUTABLE"

  /// The `imagefetch` under test.
  package static let imagefetch =
    ProcessInfo.processInfo.environment[variable] ?? path("imagefetch")

  /// A program that was built with these tests.
  package static func path(_ name: String) -> String {
    var folder = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
    while folder.path != "/" {
      let candidate = folder.appendingPathComponent(name).path
      if FileManager.default.isExecutableFile(atPath: candidate) { return candidate }
      folder.deleteLastPathComponent()
    }
    preconditionFailure("the tests' folder holds no \(name)")
  }
}
