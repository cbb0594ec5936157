import Codec
import Foundation
import Glibc
import Isolation
import Jobs
import Logging
import TestSupport

extension Sanitizer {
  /// Whether ThreadSanitizer is in use.
  static let isOfThreads = dlsym(nil, "__tsan_init") != nil
}

extension IsolatedCodec {
  /// Uses the service's own program.
  init(_ change: (inout Configuration) -> Void = { _ in }) {
    var configuration = Configuration()
    configuration.program = BuiltProgram.imagefetch
    change(&configuration)
    self.init(configuration, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  /// Uses a decoder that does what the bytes request.
  static func hostile(_ change: (inout Configuration) -> Void = { _ in }) -> IsolatedCodec {
    IsolatedCodec { configuration in
      configuration.program = BuiltProgram.path("HostileDecoder")
      configuration.maxMemory = 256 << 20
      change(&configuration)
    }
  }
}
