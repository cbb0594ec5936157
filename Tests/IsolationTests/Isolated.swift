import Codec
import Foundation
import Glibc
import Isolation
import Jobs
import Logging
import TestSupport

extension Sanitizer {
  /// Whether ThreadSanitizer is there.
  static let isOfThreads = dlsym(nil, "__tsan_init") != nil
}

extension IsolatedCodec {
  /// Of the service's own program.
  init(_ change: (inout Configuration) -> Void = { _ in }) {
    var configuration = Configuration()
    configuration.program = BuiltProgram.imagefetch
    change(&configuration)
    self.init(configuration, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  /// Of one that does what the bytes say.
  static func hostile(_ change: (inout Configuration) -> Void = { _ in }) -> IsolatedCodec {
    IsolatedCodec { configuration in
      configuration.program = BuiltProgram.path("HostileDecoder")
      configuration.maxMemory = 256 << 20
      change(&configuration)
    }
  }
}
