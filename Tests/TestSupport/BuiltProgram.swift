internal import Foundation

/// Programs that the tests start.
public enum BuiltProgram {
  /// Names the `imagefetch` that tests start instead of the one that was built with them: `make check-release` sets it.
  /// Not IMAGEFETCH_…, which the service would refuse as an unknown key.
  public static let variable = "TESTED_EXECUTABLE"

  /// The `imagefetch` under test.
  public static let imagefetch =
    ProcessInfo.processInfo.environment[variable] ?? path("imagefetch")

  /// A program that was built together with these tests.
  public static func path(_ name: String) -> String {
    var folder = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
    while folder.path != "/" {
      let candidate = folder.appendingPathComponent(name).path
      if FileManager.default.isExecutableFile(atPath: candidate) { return candidate }
      folder.deleteLastPathComponent()
    }
    preconditionFailure("the tests' folder holds no \(name)")
  }
}
