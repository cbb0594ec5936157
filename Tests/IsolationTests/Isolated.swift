import Codec
import Foundation
import Glibc
import Isolation
import Jobs
import Logging
import TestSupport

/// Programs that were built together with these tests.
enum Product {
  static func path(_ name: String) -> String {
    var folder = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
    while folder.path != "/" {
      let candidate = folder.appendingPathComponent(name).path
      if FileManager.default.isExecutableFile(atPath: candidate) { return candidate }
      folder.deleteLastPathComponent()
    }
    preconditionFailure("the tests' folder holds no \(name)")
  }
}

extension Sanitizer {
  /// Whether ThreadSanitizer is there.
  static let isOfThreads = dlsym(nil, "__tsan_init") != nil
}

extension IsolatedCodec {
  /// Of the service's own program.
  init(_ change: (inout Configuration) -> Void = { _ in }) {
    var configuration = Configuration()
    configuration.program = Product.path("imagefetch")
    change(&configuration)
    self.init(configuration, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  /// Of one that does what the bytes say.
  static func hostile(_ change: (inout Configuration) -> Void = { _ in }) -> IsolatedCodec {
    IsolatedCodec { configuration in
      configuration.program = Product.path("HostileDecoder")
      configuration.maxMemory = 256 << 20
      change(&configuration)
    }
  }
}
