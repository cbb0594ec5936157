internal import Crypto
internal import Executors
internal import Foundation
internal import Glibc
internal import Jobs

/// An image on its way into a file: small ones wait in memory until they are published, so that those given up never
/// reach the disk.
final class StagedFile: StagedImage, @unchecked Sendable {  // used by one task at a time
  /// Bytes held back, to write few large pieces rather than many small ones.
  private static let bufferSize = 64 << 10

  private let name: String
  private let folder: ImageFolder
  private let disk: ThreadPool
  private var hash = SHA256()
  private var buffer: [UInt8] = []
  private var count = 0
  /// The file, once it is made.
  private var descriptor: Int32?
  private var digest: ImageDigest?
  /// Why bytes are missing from it: then it can't be published any more.
  private var fault: StoreError?

  init(name: String, in folder: ImageFolder, disk: ThreadPool) {
    self.name = name
    self.folder = folder
    self.disk = disk
  }

  deinit {
    guard let descriptor else { return }
    // Freeing a large file takes long enough to do it elsewhere.
    Task(executorPreference: disk) { [name, folder] in
      folder.discard(name)
      close(descriptor)
    }
  }

  func write(_ bytes: [UInt8]) throws(StoreError) {
    precondition(digest == nil, "write after finish")
    bytes.withUnsafeBytes { hash.update(bufferPointer: $0) }
    count += bytes.count
    if buffer.count + bytes.count <= Self.bufferSize { return buffer.append(contentsOf: bytes) }
    try flush()
    if bytes.count < Self.bufferSize { buffer.append(contentsOf: bytes) } else { try put(bytes) }
  }

  func finish() -> ImageDigest {
    if let digest { return digest }
    guard let digest = ImageDigest(bytes: hash.finalize()) else {
      preconditionFailure("a SHA-256 has 32 bytes")
    }
    self.digest = digest
    return digest
  }

  func publish() async throws(StoreError) {
    let digest = finish()
    try await disk.perform { [self] () throws(StoreError) in try publish(as: digest) }
  }

  private func publish(as digest: ImageDigest) throws(StoreError) {
    if let fault { throw fault }
    if try folder.holds(digest, bytes: count) { return discard() }
    try flush()
    let descriptor = try file()
    try folder.publish(name, descriptor, as: digest)
    close(descriptor)
    self.descriptor = nil
  }

  private func discard() {
    buffer = []
    guard let descriptor else { return }
    folder.discard(name)
    close(descriptor)
    self.descriptor = nil
  }

  private func flush() throws(StoreError) {
    guard !buffer.isEmpty else { return }
    try put(buffer)
    buffer = []
  }

  private func file() throws(StoreError) -> Int32 {
    if let descriptor { return descriptor }
    let made = try folder.create(name)
    descriptor = made
    return made
  }

  private func put(_ bytes: [UInt8]) throws(StoreError) {
    let descriptor = try file()
    let code = bytes.withUnsafeBytes { bytes -> Int32 in
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = UnsafeRawBufferPointer(rebasing: rest)
        let written = Glibc.write(descriptor, piece.baseAddress, piece.count)
        if written < 0 && errno != EINTR { return errno }
        rest = rest.dropFirst(max(0, written))
      }
      return 0
    }
    guard code != 0 else { return }
    let fault = StoreError(errno: code, "writing an image")
    self.fault = fault
    throw fault
  }
}
