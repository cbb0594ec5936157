internal import Glibc
internal import Jobs

package final class OpenedFile: StoredFile {
  /// The descriptor, for `sendfile`.
  package let descriptor: Int32
  /// The size when the file was opened.
  package let count: Int

  /// - Parameter descriptor: closed together with this object.
  init(_ descriptor: Int32, count: Int) { (self.descriptor, self.count) = (descriptor, count) }

  deinit { close(descriptor) }

  /// Reads at an offset without a shared file position, so that concurrent reads are possible.
  package func read(at offset: Int, count: Int) -> [UInt8] {
    ImageFolder.read(descriptor, at: offset, count: count)
  }
}
