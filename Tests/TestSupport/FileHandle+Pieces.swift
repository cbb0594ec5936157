public import Foundation
import Glibc

extension FileHandle {
  /// Hands on what comes, on a thread of its own, until its end. A `readabilityHandler` is a source of Dispatch, which may
  /// crash the process when its descriptor is closed and used again at the same moment.
  public func readPieces(_ take: @escaping @Sendable (Data) -> Void) {
    // Its own, which nobody else closes.
    let descriptor = dup(fileDescriptor)
    Thread.detachNewThread {
      defer { _ = Glibc.close(descriptor) }
      var buffer = [UInt8](repeating: 0, count: 64 << 10)
      while true {
        let count = Glibc.read(descriptor, &buffer, buffer.count)
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { return }
        take(Data(buffer[..<count]))
      }
    }
  }
}
