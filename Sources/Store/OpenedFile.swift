internal import Glibc
public import Jobs

/// A file that is open for reading.
public final class OpenedFile: StoredFile {
  /// For the kernel to send from.
  public let descriptor: Int32
  /// As it was when it was opened.
  public let count: Int

  /// - Parameter descriptor: is this one's from now on.
  init(_ descriptor: Int32, count: Int) { (self.descriptor, self.count) = (descriptor, count) }

  deinit { close(descriptor) }

  /// Reads at a place of its own, so that many may at the same time.
  public func read(at offset: Int, count: Int) -> [UInt8] {
    ImageFolder.read(descriptor, at: offset, count: count)
  }
}
