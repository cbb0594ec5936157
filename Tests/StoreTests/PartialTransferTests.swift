import Foundation
import Glibc
import Jobs
import Testing

@testable import Images

@Suite("Stored partial transfers")
struct PartialTransferTests {
  private let fixture: PartialFixture
  private let key = Fingerprint.sample("a")

  init() throws { fixture = try PartialFixture() }

  private var store: FileImageStore { fixture.store }

  @Test(
    "a stored transfer is resumed up to the complete image, wherever it broke off",
    arguments: [1, 10, 65_535, 65_536, 65_537, 70_000, 300_000])
  func continued(count: Int) async throws {
    let bytes = imageBytes(400_000)
    try await fixture.setAside(key, Array(bytes.prefix(count)), .sample(bytes.count))
    #expect(store.partialBytes == count)
    let kept = try #require(try await store.takePartial(key))
    #expect(kept.response == .sample(bytes.count))
    #expect(kept.count == count && kept.bytes.count == count)
    #expect(kept.bytes.read(at: 0, count: count + 1) == Array(bytes.prefix(count)))
    try kept.staged.write(Array(bytes.dropFirst(count)))
    #expect(kept.staged.finish() == sha256(bytes))
    try await store.publish(kept.staged)
    let image = try #require(try await store.open(kept.staged.finish()))
    #expect(image.read(at: 0, count: bytes.count + 1) == bytes)
    #expect(store.partialBytes == 0)
    #expect(fixture.files("incoming") + fixture.files("partials") == [])
  }

  @Test("a stored transfer is returned once, until it is stored again with more bytes")
  func handedOverOnce() async throws {
    let bytes = imageBytes(500_000)
    try await fixture.setAside(key, Array(bytes.prefix(100)))
    for end in [200, 100_000, 100_001, 500_000] {
      let kept = try #require(try await store.takePartial(key))
      #expect(try await store.takePartial(key) == nil)
      #expect(store.partialBytes == 0)
      try kept.staged.write(Array(bytes[kept.count..<end]))
      try await kept.staged.keepPartial()
      #expect(store.partialBytes == end)
    }
    #expect(try await fixture.kept(key) == bytes)
  }

  @Test("a transfer may be stored again unchanged")
  func unchanged() async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    for _ in 0..<3 { #expect(try await fixture.kept(key) == imageBytes(1_000)) }
    try fixture.crash(bootID: "second")
    #expect(try await fixture.kept(key) == imageBytes(1_000))
  }

  @Test("a stored transfer replaces the one with the same key, and not those of other keys")
  func replaced() async throws {
    try await fixture.setAside(.sample("b"), imageBytes(50))
    try await fixture.setAside(key, imageBytes(1_000))
    try await fixture.setAside(key, imageBytes(70_000, seed: 2))
    #expect(store.partialBytes == 70_050)
    #expect(fixture.files("partials").count == 4)
    #expect(try await fixture.kept(key) == imageBytes(70_000, seed: 2))
    #expect(try await fixture.kept(.sample("b")) == imageBytes(50))
  }

  @Test("the last of concurrent transfers with one key is stored completely")
  func concurrent() async throws {
    let (store, key) = (store, key)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for seed in UInt8(0)..<40 {
        group.addTask {
          let staged = try await store.stage()
          staged.identify(key, .sample())
          try staged.write(imageBytes(70_000, seed: seed))
          try await staged.keepPartial()
        }
      }
      try await group.waitForAll()
    }
    #expect(store.partialBytes == 70_000)
    #expect(fixture.files("partials").count == 2)
    let bytes = try #require(try await fixture.kept(key))
    #expect(bytes == imageBytes(70_000, seed: bytes[0]))
  }

  @Test("a transfer without a key or without bytes is not stored")
  func nothing() async throws {
    let unidentified = try await store.stage()
    try unidentified.write(imageBytes(100_000))
    try await unidentified.keepPartial()
    try await fixture.setAside(key, [])
    #expect(fixture.files("incoming") + fixture.files("partials") == [])
    #expect(store.partialBytes == 0)
  }

  @Test("a dropped transfer is deleted")
  func dropped() async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    try await store.deletePartial(key)
    try await store.deletePartial(key)
    #expect(try await store.takePartial(key) == nil)
    #expect(store.partialBytes == 0)
    #expect(fixture.files("partials") == [])
  }

  @Test("an abandoned transfer leaves no files", arguments: [false, true])
  func letGo(writes: Bool) async throws {
    try await fixture.setAside(key, imageBytes(100_000))
    do {
      let kept = try #require(try await store.takePartial(key))
      if writes { try kept.staged.write(imageBytes(100_000)) }
    }
    #expect(try await fixture.isClean())
    #expect(try await store.takePartial(key) == nil)
  }

  @Test("the bytes of a transfer stay readable after it was abandoned")
  func readable() async throws {
    try await fixture.setAside(key, imageBytes(100_000))
    let bytes = try #require(try await store.takePartial(key)).bytes
    #expect(try await fixture.isClean())
    #expect(bytes.read(at: 0, count: 200_000) == imageBytes(100_000))
  }

  @Test("a corrupt transfer is dropped", arguments: [0, 500, 999])
  func harmed(place: Int) async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    try fixture.crash { path in
      try changeByte(at: place, ofFileIn: path + "/partials")
    }
    #expect(store.partialBytes == 1_000)
    #expect(try await store.takePartial(key) == nil)
    #expect(fixture.files("partials") == [])
  }

  @Test("a transfer that is truncated or longer than the whole image is dropped")
  func wrongLength() async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    try await fixture.setAside(.sample("b"), imageBytes(1_000), .sample(999))
    try fixture.crash { path in
      for name in try bytesFiles(in: path + "/partials") { #expect(truncate(name, 999) == 0) }
    }
    #expect(try await store.takePartial(key) == nil)
    #expect(try await store.takePartial(.sample("b")) == nil)
    #expect(fixture.files("partials") == [])
  }

  @Test("a transfer without its file is not returned")
  func deleted() async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    for name in try bytesFiles(in: fixture.folder.path + "/images/partials") { unlink(name) }
    #expect(try await store.takePartial(key) == nil)
    #expect(fixture.files("partials") == [])
    #expect(store.partialBytes == 0)
  }

  @Test("a full disk loses only the transfer that does not fit")
  func full() async throws {
    try await fixture.setAside(.sample("b"), imageBytes(10))
    let staged = try await fixture.stage(key, imageBytes(70_000))
    let path = fixture.folder.path + "/images/incoming/"
    try replaceDescriptor(of: path + fixture.files("incoming")[0], by: "/dev/full")
    try staged.write([1])
    await #expect(throws: StoreError.full) { try await staged.keepPartial() }
    #expect(fixture.files("incoming") == [])
    #expect(store.partialBytes == 10)
    #expect(try await store.takePartial(key) == nil)
    #expect(try await fixture.kept(.sample("b")) == imageBytes(10))
  }

  @Test("stored transfers stay when other images are stored, and during a sweep")
  func sweep() async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    try await fixture.setAside(.sample("b"), imageBytes(2_000))
    try fixture.crash()
    let taken = try #require(try await store.takePartial(.sample("b")))
    let staged = try await fixture.stage(.sample("c"), imageBytes(70_000, seed: 3))
    #expect(try await store.removeUnfinished() == 0)
    #expect(try await store.sweep { $0.count } == 0)
    #expect(try await fixture.kept(key) == imageBytes(1_000))
    for stage in [taken.staged, staged] { try await store.publish(stage) }
    #expect(try await store.open(sha256(imageBytes(2_000))!)?.count == 2_000)
    #expect(try await store.open(sha256(imageBytes(70_000, seed: 3))!)?.count == 70_000)
  }

  @Test("transfers of an image that is stored already are deleted")
  func publishedElsewhere() async throws {
    let staged = try await fixture.stage(key, imageBytes(100_000))
    let other = try await fixture.stage(.sample("b"), imageBytes(100_000))
    try await store.publish(staged)
    try await store.publish(other)
    #expect(fixture.files("incoming") + fixture.files("partials") == [])
    #expect(fixture.files("").count == 1)
  }
}

/// Returns the files in a folder that contain bytes and not records.
func bytesFiles(in folder: String) throws -> [String] {
  try FileManager.default.contentsOfDirectory(atPath: folder).filter { !$0.hasSuffix(".json") }.map
  {
    folder + "/" + $0
  }
}

/// Changes one byte of the first file that contains bytes.
func changeByte(at place: Int, ofFileIn folder: String) throws {
  let path = try #require(try bytesFiles(in: folder).first)
  let descriptor = open(path, O_RDWR)
  defer { close(descriptor) }
  var byte: UInt8 = 0
  #expect(pread(descriptor, &byte, 1, off_t(place)) == 1)
  byte ^= 0x10
  #expect(pwrite(descriptor, &byte, 1, off_t(place)) == 1)
}
