import Digests
import Foundation
import Glibc
import Images
import Jobs
import Synchronization
import TestSupport
import Testing

@Suite("Images in files")
struct FileImageStoreTests {
  private let folder: TemporaryFolder
  private let store: FileImageStore

  init() throws {
    folder = try TemporaryFolder()
    store = try folder.openImages()
  }

  private static func bytes(_ count: Int, seed: UInt8 = 1) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) ^ seed }
  }

  private static func digest(_ bytes: [UInt8]) -> ImageDigest? {
    ImageDigest(bytes: SHA256.hash(data: bytes))
  }

  private func publish(_ bytes: [UInt8]) async throws -> ImageDigest {
    let staged = try await store.stage()
    try staged.write(bytes)
    let digest = staged.finish()
    try await store.publish(staged)
    return digest
  }

  private func read(_ stored: StoredBytes?) -> [UInt8]? {
    guard case .file(let file as OpenedFile, _)? = stored else { return nil }
    var bytes = [UInt8](repeating: 0, count: file.count + 1)
    let count = pread(file.descriptor, &bytes, bytes.count, 0)
    return Array(bytes.prefix(count))
  }

  @Test("bytes written in pieces of any size are stored under their SHA-256")
  func kept() async throws {
    for count in [0, 1, 10_000, 65_536, 65_537, 1_000_000] {
      for piece in [100, 1_000, 65_536, 200_000] {
        try await expectKept(Self.bytes(count, seed: UInt8(piece % 251)), writtenBy: piece)
      }
    }
    #expect(folder.files(below: "images/incoming") == [])
  }

  private func expectKept(_ bytes: [UInt8], writtenBy piece: Int) async throws {
    let staged = try await store.stage()
    for start in stride(from: 0, to: bytes.count, by: piece) {
      try staged.write(Array(bytes[start..<min(bytes.count, start + piece)]))
    }
    let digest = staged.finish()
    #expect(digest == Self.digest(bytes))
    if !bytes.isEmpty { #expect(try await store.open(digest) == nil, "not stored yet") }
    try await store.publish(staged)
    #expect(read(try await store.open(digest)) == bytes)
  }

  @Test("equal bytes are stored once")
  func once() async throws {
    let bytes = Self.bytes(100_000)
    let first = try await publish(bytes)
    let second = try await publish(bytes)
    #expect(first == second)
    #expect(folder.files(below: "images").count == 1)
  }

  @Test("a file that is shorter than its image is replaced")
  func replaced() async throws {
    let bytes = Self.bytes(5_000)
    let digest = try await publish(bytes)
    let path = try #require(folder.files(below: "images").first)
    try Data(bytes.prefix(10)).write(to: URL(fileURLWithPath: folder.path + "/images/" + path))
    _ = try await publish(bytes)
    #expect(read(try await store.open(digest)) == bytes)
  }

  @Test("concurrent images, some of them equal, are all stored")
  func concurrent() async throws {
    let digests = try await withThrowingTaskGroup(of: ImageDigest.self) { group in
      for number in 0..<100 {
        group.addTask { try await publish(Self.bytes(70_000, seed: UInt8(number / 2))) }
      }
      return try await group.reduce(into: Set()) { $0.insert($1) }
    }
    #expect(digests.count == 50)
    #expect(folder.files(below: "images").count == 50)
    for digest in digests { #expect(try await store.open(digest)?.count == 70_000) }
  }

  @Test("an image that is abandoned before it is stored leaves no file")
  func letGo() async throws {
    do {
      let staged = try await store.stage()
      try staged.write(Self.bytes(500_000))
      #expect(folder.files(below: "images/incoming").count == 1)
    }
    let deadline = ContinuousClock.now + patience
    while !folder.files(below: "images").isEmpty, ContinuousClock.now < deadline {
      try await Task.sleep(for: .milliseconds(2))
    }
    #expect(folder.files(below: "images") == [])
  }

  @Test("an open image stays readable after its deletion, and a second deletion is no error")
  func removed() async throws {
    let bytes = Self.bytes(3_000)
    let digest = try await publish(bytes)
    let open = try await store.open(digest)
    try await store.remove(ImageName(digest))
    try await store.remove(ImageName(digest))
    #expect(try await store.open(digest) == nil)
    #expect(read(open) == bytes)
  }

  @Test("unfinished files are removed, and a sweep reports all images and nothing else")
  func sweep() async throws {
    var digests: [ImageDigest] = []
    for seed in 0..<10 { digests.append(try await publish(Self.bytes(100, seed: UInt8(seed)))) }
    let images = folder.path + "/images/"
    try Data([1]).write(to: URL(fileURLWithPath: images + "incoming/left-behind"))
    try Data([1]).write(to: URL(fileURLWithPath: images + "ab/not-ours"))
    #expect(try await store.removeUnfinished() == 1)
    let wanted = Set(digests.prefix(4))
    let swept = Mutex<[ImageDigest]>([])
    let removed = try await store.sweep { [store] found in
      swept.withLock { $0 += found.map(\.digest) }
      let unwanted = found.filter { !wanted.contains($0.digest) }
      for name in unwanted { try? await store.remove(name) }
      return unwanted.count
    }
    #expect(removed == 6)
    #expect(swept.withLock { $0.count } == 10 && swept.withLock { Set($0) } == Set(digests))
    #expect(folder.files(below: "images").count == 5)
    for digest in digests {
      #expect(try await (store.open(digest) != nil) == wanted.contains(digest))
    }
  }

  @Test("a sweep reports images in portions and stops when its task is cancelled")
  func longSweep() async throws {
    let images = folder.path + "/images/"
    for number in 0..<1_200 {
      let hex = ImageDigest.sample(number).hex
      let path = images + "\(hex.prefix(2))/\(hex.dropFirst(2))"
      try Data([1]).write(to: URL(fileURLWithPath: path))
    }
    let parts = Mutex<[Int]>([])
    _ = try await store.sweep { found in
      parts.withLock { $0.append(found.count) }
      return 0
    }
    #expect(parts.withLock { $0.reduce(0, +) } == 1_200)
    #expect(parts.withLock { $0.count } > 1 && parts.withLock { $0.max()! } < 512)
    let looks = await Task { [store] in
      let looks = Mutex(0)
      _ = try? await store.sweep { _ in
        looks.withLock { $0 += 1 }
        withUnsafeCurrentTask { $0?.cancel() }
        return 0
      }
      return looks.withLock { $0 }
    }.value
    #expect(looks == 1)
  }

  @Test("a folder that need not survive a crash is swept too, unless it is new")
  func sweptCopies() async throws {
    for isSwept in [true, false] {
      var configuration = FileImageStore.Configuration(path: folder.path + "/copies-\(isSwept)")
      (configuration.isDurable, configuration.isSwept) = (false, isSwept)
      let store = try FileImageStore(configuration)
      let staged = try await store.stage()
      try staged.write([1, 2, 3])
      let digest = staged.finish()
      try await store.publish(staged)
      let swept = Mutex<[ImageDigest]>([])
      _ = try await store.sweep { found in
        swept.withLock { $0 += found.map(\.digest) }
        return 0
      }
      #expect(swept.withLock { $0 } == (isSwept ? [digest] : []))
    }
  }

  @Test("symbolic links are not followed")
  func links() async throws {
    let digest = ImageDigest.sample(5)
    let secret = folder.path + "/secret"
    try Data([1]).write(to: URL(fileURLWithPath: secret))
    let hex = digest.hex
    let path = "\(folder.path)/images/\(hex.prefix(2))/\(hex.dropFirst(2))"
    #expect(symlink(secret, path) == 0)
    await #expect(throws: StoreError.self) { try await store.open(digest) }
  }

  @Test("files and folders are accessible only to their owner")
  func permissions() async throws {
    _ = try await publish([1])
    let file = try #require(folder.files(below: "images").first)
    var status = stat()
    #expect(stat(folder.path + "/images/" + file, &status) == 0 && status.st_mode & 0o777 == 0o600)
    #expect(stat(folder.path + "/images", &status) == 0 && status.st_mode & 0o777 == 0o700)
  }

  @Test("a second process can't open the folder")
  func locked() throws {
    #expect(throws: StoreError.self) { try folder.openImages() }
  }

  @Test("a full disk is reported, and the image can't be stored any more")
  func full() async throws {
    // A limit on file sizes would apply to the whole process. Writing to /dev/full returns ENOSPC.
    let staged = try await store.stage()
    try staged.write(Self.bytes(70_000))
    let name = try #require(folder.files(below: "images/incoming").first)
    try replaceDescriptor(of: folder.path + "/images/incoming/" + name, by: "/dev/full")
    #expect(throws: StoreError.full) { try staged.write(Self.bytes(70_000)) }
    _ = staged.finish()
    await #expect(throws: StoreError.full) { try await store.publish(staged) }
    #expect(try await store.open(staged.finish()) == nil)
  }
}

/// Makes this process's descriptor of one file refer to another one.
func replaceDescriptor(of path: String, by other: String) throws {
  for name in try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
    guard let descriptor = Int32(name),
      let target = try? FileManager.default.destinationOfSymbolicLink(
        atPath: "/proc/self/fd/" + name), target == path
    else { continue }
    let replacement = open(other, O_WRONLY)
    #expect(dup2(replacement, descriptor) == descriptor)
    close(replacement)
  }
}
