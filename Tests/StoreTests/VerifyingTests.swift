import Foundation
import Glibc
import Jobs
import Synchronization
import TestSupport
import Testing

@testable import Images

@Suite("Verifying stored images")
struct VerifyingTests {
  private let folder: TemporaryFolder
  private let store: FileImageStore
  private let bytes = imageBytes(300_000)
  private let digest: ImageDigest

  init() async throws {
    folder = try TemporaryFolder()
    store = try folder.openImages()
    digest = try #require(sha256(bytes))
    try await publish(bytes)
  }

  private func publish(_ bytes: [UInt8]) async throws {
    let staged = try await store.stage()
    try staged.write(bytes)
    try await store.publish(staged)
  }

  private var path: String {
    "\(folder.path)/images/\(digest.hex.prefix(2))/\(digest.hex.dropFirst(2))"
  }

  private var isRemembered: Bool {
    guard let file = FileHandle(forReadingAtPath: path),
      let stamp = FileStamp(file.fileDescriptor)
    else { return false }
    return store.folder.verified.contains(digest, stamp)
  }

  private func write(_ byte: UInt8, at place: Int) throws {
    let descriptor = Glibc.open(path, O_WRONLY)
    defer { close(descriptor) }
    #expect(pwrite(descriptor, [byte], 1, off_t(place)) == 1)
  }

  @Test("an intact image is verified repeatedly, without a read after it was stored")
  func whole() async throws {
    #expect(isRemembered)
    for _ in 0..<3 { #expect(try await store.verify(digest, bytes: bytes.count)) }
    #expect(try await store.open(digest)?.read(at: 0, count: bytes.count) == bytes)
  }

  @Test("an image is read once after a restart")
  func restart() async throws {
    store.folder.verified.remove(digest)
    #expect(try await store.verify(digest, bytes: bytes.count))
    #expect(isRemembered)
  }

  @Test("a missing image is reported as missing")
  func missing() async throws {
    #expect(try await !store.verify(.sample(9), bytes: 10))
    try await store.remove(ImageName(digest))
    #expect(try await !store.verify(digest, bytes: bytes.count))
  }

  @Test("one changed byte causes the removal of the file", arguments: [0, 150_000, 299_999])
  func harmed(place: Int) async throws {
    try write(bytes[place] ^ 1, at: place)
    #expect(try await !store.verify(digest, bytes: bytes.count))
    #expect(try await store.open(digest) == nil)
    #expect(folder.files(below: "images") == [])
  }

  @Test("an unreadable file says nothing about its bytes")
  func unreadable() throws {
    let descriptor = Glibc.open(path, O_WRONLY)
    defer { close(descriptor) }
    var hash = PrefixHash()
    #expect(throws: StoreError.self) { try hash.read(descriptor, upTo: bytes.count) }
    let file = try #require(FileHandle(forReadingAtPath: path))
    #expect(try hash.read(file.fileDescriptor, upTo: bytes.count) && hash.digest == digest)
    #expect(try !hash.read(file.fileDescriptor, upTo: bytes.count + 1))
  }

  @Test("a file that was touched but not changed stays")
  func touched() async throws {
    try write(bytes[7], at: 7)
    #expect(!isRemembered)
    #expect(try await store.verify(digest, bytes: bytes.count))
    #expect(isRemembered)
  }

  @Test("a file of another size is removed", arguments: [0, 299_999, 300_001])
  func size(count: Int) async throws {
    #expect(truncate(path, count) == 0)
    #expect(try await !store.verify(digest, bytes: bytes.count))
    #expect(folder.files(below: "images") == [])
  }

  @Test("a symbolic link in place of a file is removed, and its target stays")
  func link() async throws {
    let other = folder.path + "/other"
    try Data(bytes).write(to: URL(fileURLWithPath: other))
    unlink(path)
    #expect(symlink(other, path) == 0)
    #expect(try await !store.verify(digest, bytes: bytes.count))
    #expect(access(other, F_OK) == 0 && access(path, F_OK) != 0)
  }

  @Test("a corrupt file is not opened, whatever is cached about it", arguments: [true, false])
  func opening(isRestarted: Bool) async throws {
    try write(bytes[9] ^ 1, at: 9)
    if isRestarted { store.folder.verified.remove(digest) }
    #expect(try await store.open(digest) == nil)
    #expect(folder.files(below: "images") == [])
    #expect(try await store.open(digest) == nil)
  }

  @Test("a file that was touched, or not read since a restart, is opened")
  func openingWhole() async throws {
    for _ in 0..<3 {
      try write(bytes[7], at: 7)
      #expect(try await store.open(digest)?.read(at: 0, count: bytes.count) == bytes)
      store.folder.verified.remove(digest)
      #expect(try await store.open(digest)?.count == bytes.count)
      #expect(isRemembered)
    }
  }

  @Test("concurrent verifications share one read and its result")
  func shared() async throws {
    let verifications = Verifications()
    let readings = Counter()
    for expected in [true, false] {
      let (gate, opened) = AsyncStream.makeStream(of: Void.self)
      let results = try await withThrowingTaskGroup(of: Bool.self) { group in
        for _ in 0..<50 {
          group.addTask { [digest] in
            try await verifications.share(digest, nil) { () async throws(StoreError) in
              readings.count()
              for await _ in gate {}
              return expected
            }
          }
        }
        try await eventually { verifications.waiters == 49 }
        opened.finish()
        return try await group.reduce(into: []) { $0.append($1) }
      }
      #expect(results == Array(repeating: expected, count: 50))
    }
    #expect(readings.value == 2)
    #expect(verifications.waiters == 0)
  }

  private final class Counter: Sendable {
    private let number = Mutex(0)

    var value: Int { number.withLock { $0 } }

    func count() { number.withLock { $0 += 1 } }
  }

  private func eventually(_ condition: () -> Bool) async throws {
    let deadline = ContinuousClock.now + patience
    while !condition() {
      try #require(ContinuousClock.now < deadline)
      try await Task.sleep(for: .milliseconds(1))
    }
  }

  @Test("the check for free space leaves no file")
  func room() async throws {
    #expect(await store.hasRoom())
    #expect(folder.files(below: "images/incoming") == [])
    #expect(!store.folder.canAllocate(1 << 60, temporaryName: "much"))
    #expect(folder.files(below: "images/incoming") == [])
  }

  @Test("an open file stays readable after its removal")
  func reading() async throws {
    let open = try #require(try await store.open(digest))
    try write(0, at: 1)
    #expect(try await !store.verify(digest, bytes: bytes.count))
    #expect(open.read(at: 2, count: 100) == Array(bytes[2..<102]))
  }

  @Test("a corrupt file of the right size is replaced when the image is stored again")
  func replaced() async throws {
    try write(bytes[5] ^ 1, at: 5)
    try await publish(bytes)
    #expect(try await store.open(digest)?.read(at: 0, count: bytes.count) == bytes)
    #expect(try await store.verify(digest, bytes: bytes.count))
  }

  @Test("concurrent verifications and stores of one image never lose it")
  func concurrent() async throws {
    let (store, digest, bytes) = (store, digest, bytes)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<60 {
        group.addTask {
          if number % 3 == 0 {
            let staged = try await store.stage()
            try staged.write(bytes)
            try await store.publish(staged)
          } else {
            if number % 3 == 1 { store.folder.verified.remove(digest) }
            #expect(try await store.verify(digest, bytes: bytes.count))
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(folder.files(below: "images").count == 1)
  }

  @Test("the cache of verified files is limited, and recently used entries stay")
  func bounded() throws {
    let verified = VerifiedFiles(limit: 100)
    let stamp = try #require(FileStamp(0))
    for number in 0..<1_000 {
      verified.record(.sample(number), stamp)
      #expect(verified.contains(.sample(0), stamp))
      #expect(verified.count <= 100)
    }
    #expect(!verified.contains(.sample(500), stamp))
    #expect(verified.contains(.sample(999), stamp))
  }
}
