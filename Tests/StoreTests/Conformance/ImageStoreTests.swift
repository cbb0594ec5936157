import Foundation
import Jobs
import Logging
import S3
import Synchronization
import TestSupport
import Testing

@testable import Images

/// The image stores to test. Each one must pass the suite below; a new store needs a case and code
/// to open it.
enum ImageAdapter: String, CaseIterable, CustomTestStringConvertible, Sendable {
  case files, memory
  /// Files, with images spooled in another folder.
  case filesWithForeignSpool
  /// Files, together with a database for small images.
  case tiered
  /// Objects of a real server, with local copies in files.
  case bucket

  var testDescription: String { rawValue }
}

/// A temporary folder with an open image store.
struct OpenImages {
  let folder: TemporaryFolder
  let store: any ImageStore
  let spool: any ImageSpool
  private let memory: MemoryImageStore?
  private let bucket: TestBucket?

  init(_ adapter: ImageAdapter) async throws {
    folder = try TemporaryFolder()
    guard adapter != .memory else {
      let images = MemoryImageStore()
      (store, spool, memory, bucket) = (images, images.spool, images, nil)
      return
    }
    let files = try folder.openImages()
    memory = nil
    bucket = adapter == .bucket ? try await TestBucket() : nil
    switch adapter {
    case .files, .memory: (store, spool) = (files, files.spool)
    case .bucket:
      store = S3ImageStore(
        try #require(bucket).bucket, copies: files, spool: files.spool, maxCopyBytes: 1_000_000,
        keptImage: { KeptImage(ImageName($0), bytes: 1 << 20) },
        log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
      spool = files.spool
    case .filesWithForeignSpool:
      store = files
      spool = try FileImageStore(.init(path: folder.path + "/elsewhere")).spool
    case .tiered:
      store = TieredImageStore(jobs: try folder.openJobs().sql, files: files)
      spool = files.spool
    }
  }

  /// Spools bytes in pieces and stores them.
  func put(_ bytes: [UInt8], inPiecesOf size: Int = 50_000) async throws -> ImageDigest {
    let staged = try await spooled(bytes, inPiecesOf: size)
    try await store.put(staged, as: ImageName(staged.finish()))
    return staged.finish()
  }

  func spooled(_ bytes: [UInt8], inPiecesOf size: Int = 50_000) async throws -> any StagedImage {
    let staged = try await spool.stage()
    for start in stride(from: 0, to: bytes.count, by: size) {
      try staged.write(Array(bytes[start..<min(bytes.count, start + size)]))
    }
    return staged
  }

  func read(_ digest: ImageDigest) async throws -> [UInt8]? {
    guard let stored = try await store.open(digest) else { return nil }
    return stored.read(at: 0, count: stored.count + 1)
  }

  /// Replaces the bytes of a stored image, like a failing disk.
  func harm(_ digest: ImageDigest, with bytes: [UInt8]) async throws {
    if let memory { return memory.harm(digest, with: bytes) }
    let name = "/images/\(digest.hex.prefix(2))/\(digest.hex.dropFirst(2))"
    if let bucket {
      try await bucket.put(S3ImageStore.key(of: ImageName(digest)), bytes)
      try? FileManager.default.removeItem(atPath: folder.path + name)
      return
    }
    try Data(bytes).write(to: URL(fileURLWithPath: folder.path + name))
  }

  /// Returns all images that a sweep reports.
  func all() async throws -> [ImageDigest] {
    let found = Mutex<[ImageDigest]>([])
    _ = try await store.sweep { names in
      found.withLock { $0 += names.map(\.digest) }
      return 0
    }
    return found.withLock { $0 }
  }
}

@Suite("All image stores")
struct ImageStoreTests {
  @Test(
    "a store returns the bytes of an image, complete and in parts", arguments: ImageAdapter.allCases
  )
  func kept(adapter: ImageAdapter) async throws {
    let images = try await OpenImages(adapter)
    for count in [0, 1, 10_000, 65_536, 65_537, 1_000_000] {
      let bytes = imageBytes(count, seed: UInt8(count % 251))
      let staged = try await images.spooled(bytes)
      let digest = staged.finish()
      #expect(try await images.store.open(digest) == nil, "not stored yet")
      try await images.store.put(staged, as: ImageName(digest))
      #expect(try await images.read(digest) == bytes)
      let stored = try #require(try await images.store.open(digest))
      #expect(stored.count == count)
      #expect(stored.read(at: count / 2, count: 9) == Array(bytes.dropFirst(count / 2).prefix(9)))
      #expect(stored.read(at: count, count: 9).isEmpty)
    }
    #expect(try await images.all().count == 6)
    #expect(await images.store.hasRoom())
  }

  @Test("equal images are stored once, also by concurrent calls", arguments: ImageAdapter.allCases)
  func once(adapter: ImageAdapter) async throws {
    let images = try await OpenImages(adapter)
    let digests = try await withThrowingTaskGroup(of: ImageDigest.self) { group in
      for number in 0..<40 {
        group.addTask { try await images.put(imageBytes(70_000, seed: UInt8(number / 4))) }
      }
      return try await group.reduce(into: Set()) { $0.insert($1) }
    }
    #expect(digests.count == 10)
    let all = try await images.all()
    #expect(all.count == 10 && Set(all) == digests)
    for digest in digests { #expect(try await images.store.verify(digest, bytes: 70_000)) }
  }

  @Test("an open image stays readable after its deletion", arguments: ImageAdapter.allCases)
  func removed(adapter: ImageAdapter) async throws {
    let images = try await OpenImages(adapter)
    let bytes = imageBytes(100_000)
    let digest = try await images.put(bytes)
    let open = try #require(try await images.store.open(digest))
    try await images.store.remove(ImageName(digest))
    try await images.store.remove(ImageName(digest))
    #expect(try await images.store.open(digest) == nil)
    #expect(try await !images.store.verify(digest, bytes: bytes.count))
    #expect(try await images.all().isEmpty)
    #expect(open.read(at: 0, count: open.count) == bytes)
    #expect(try await images.put(bytes) == digest)
    #expect(try await images.read(digest) == bytes)
  }

  @Test(
    "a corrupt image counts as missing and can be stored again",
    arguments: ImageAdapter.allCases, [99_000, 100_000, 101_000])
  func harmed(adapter: ImageAdapter, count: Int) async throws {
    let images = try await OpenImages(adapter)
    let bytes = imageBytes(100_000)
    let digest = try await images.put(bytes)
    let other = imageBytes(count, seed: 2)
    try await images.harm(digest, with: other)
    #expect(try await images.store.open(digest) == nil)
    #expect(try await images.put(bytes) == digest)
    #expect(try await images.read(digest) == bytes)
    try await images.harm(digest, with: other)
    #expect(try await !images.store.verify(digest, bytes: bytes.count))
    // An object in a bucket stays, because it may have been stored again since it was read.
    #expect(try await images.all().isEmpty == (adapter != .bucket), "it is deleted")
    _ = try await images.put(bytes)
    try await images.harm(digest, with: other)
    _ = try await images.put(bytes)
    #expect(try await images.read(digest) == bytes, "stored over corrupt bytes")
    #expect(try await !images.store.verify(digest, bytes: bytes.count - 1))
  }

  @Test("a sweep reports all images", arguments: ImageAdapter.allCases)
  func sweep(adapter: ImageAdapter) async throws {
    let images = try await OpenImages(adapter)
    var digests: [ImageDigest] = []
    for seed in 0..<10 { digests.append(try await images.put(imageBytes(100, seed: UInt8(seed)))) }
    let wanted = Set(digests.prefix(4))
    let removed = try await images.store.sweep { found in
      let unwanted = found.filter { !wanted.contains($0.digest) }
      for name in unwanted { try? await images.store.remove(name) }
      return unwanted.count
    }
    #expect(removed == 6)
    #expect(try await Set(images.all()) == wanted)
    for digest in digests {
      #expect(try await (images.store.open(digest) != nil) == wanted.contains(digest))
    }
  }

  @Test(
    "concurrent reads, writes and deletions of equal images return complete bytes or none",
    arguments: ImageAdapter.allCases)
  func comeAndGo(adapter: ImageAdapter) async throws {
    let images = try await OpenImages(adapter)
    let bytes = imageBytes(80_000)
    let digest = try await images.put(bytes)
    try await withThrowingTaskGroup { group in
      group.addTask { for _ in 0..<40 { _ = try await images.put(bytes) } }
      group.addTask { for _ in 0..<40 { try await images.store.remove(ImageName(digest)) } }
      group.addTask {
        for _ in 0..<80 {
          guard let stored = try await images.store.open(digest) else { continue }
          #expect(stored.read(at: 0, count: stored.count) == bytes)
        }
      }
      try await group.waitForAll()
    }
    _ = try await images.put(bytes)
    #expect(try await images.read(digest) == bytes)
  }

  @Test("an abandoned image is not stored", arguments: ImageAdapter.allCases)
  func letGo(adapter: ImageAdapter) async throws {
    let images = try await OpenImages(adapter)
    let digest = try await images.spooled(imageBytes(200_000)).finish()
    #expect(try await images.store.open(digest) == nil)
    #expect(try await images.all().isEmpty)
  }

  @Test("spooled bytes can be read before they are stored", arguments: ImageAdapter.allCases)
  func spooled(adapter: ImageAdapter) async throws {
    let images = try await OpenImages(adapter)
    for count in [0, 10, 300_000] {
      let bytes = imageBytes(count)
      let staged = try await images.spooled(bytes)
      _ = staged.finish()
      let read = try staged.bytes()
      #expect(read.count == count && read.read(at: 0, count: count + 1) == bytes)
    }
  }
}
