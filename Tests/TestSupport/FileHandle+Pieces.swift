package import Foundation
import Glibc

extension FileHandle {
  /// Passes on data as it arrives, on a separate thread, until the end. `readabilityHandler` uses a Dispatch source, which can
  /// crash the process if its descriptor is closed and reused at the same moment. Calls `atEnd` last.
  package func readPieces(
    atEnd: @escaping @Sendable () -> Void = {}, _ take: @escaping @Sendable (Data) -> Void
  ) {
    // A duplicate descriptor, which no other code closes.
    let descriptor = dup(fileDescriptor)
    Thread.detachNewThread {
      defer { _ = Glibc.close(descriptor) }
      var buffer = [UInt8](repeating: 0, count: 64 << 10)
      while true {
        let count = Glibc.read(descriptor, &buffer, buffer.count)
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { return atEnd() }
        take(Data(buffer[..<count]))
      }
    }
  }
}
