import Foundation
import Glibc
import Jobs
import Testing

@testable import Images

/// A transfer with this many bytes writes its record at once.
private let recorded = 1 << 20

@Suite("Partial transfers after a crash")
struct PartialCrashTests {
  private let fixture: PartialFixture
  private let key = Fingerprint.sample("a")

  init() throws { fixture = try PartialFixture() }

  private var store: FileImageStore { fixture.store }

  @Test(
    "the bytes of an identified transfer are resumed",
    arguments: [recorded + 70_000, recorded + 300_000])
  func killed(count: Int) async throws {
    let bytes = imageBytes(count + 100_000)
    let staged = try await fixture.stage(key, Array(bytes.prefix(count)), .sample(bytes.count))
    try fixture.crash()
    let kept = try #require(try await store.takePartial(key))
    #expect(kept.response == .sample(bytes.count))
    #expect(kept.count <= count && kept.count >= count - 65_536)
    #expect(kept.bytes.read(at: 0, count: count) == Array(bytes.prefix(kept.count)))
    try kept.staged.write(Array(bytes.dropFirst(kept.count)))
    try await store.publish(kept.staged)
    #expect(kept.staged.finish() == sha256(bytes))
    withExtendedLifetime(staged) {}
  }

  @Test("a slow transfer loses few bytes")
  func slow() async throws {
    let staged = try await fixture.stage(key, imageBytes(100))
    #expect(fixture.files("incoming") == [], "not yet")
    try await Task.sleep(for: .milliseconds(600))
    try staged.write([1, 2, 3])
    try fixture.crash()
    #expect(try await fixture.kept(key) == imageBytes(100) + [1, 2, 3])
  }

  @Test("a fast transfer of up to a MiB has no record and is not resumed")
  func unrecorded() async throws {
    let fixture = try PartialFixture(maxUnrecordedBytes: 1 << 20)
    let bytes = imageBytes(900_000)
    let began = ContinuousClock.now
    let few = try await fixture.stage(key, bytes, .sample(3_000_000))
    // On a busy machine the write may have taken longer.
    let isSoon = began.duration(to: .now) < .milliseconds(500)
    #expect(fixture.files("partials") == [] || !isSoon)
    let many = try await fixture.stage(.sample("b"), imageBytes(1_100_000), .sample(3_000_000))
    #expect(!fixture.files("partials").isEmpty)
    try fixture.crash()
    let kept = try await fixture.store.takePartial(key)
    #expect(kept == nil || !isSoon)
    #expect(try await fixture.store.takePartial(.sample("b")) != nil)
    withExtendedLifetime([few, many]) {}
  }

  @Test("an unidentified transfer stays in memory, however slow it is, and leaves nothing")
  func unidentified() async throws {
    let staged = try await store.stage()
    try staged.write([1])
    try await Task.sleep(for: .milliseconds(600))
    try staged.write([2])
    #expect(fixture.files("incoming") == [])
    try staged.write(imageBytes(100_000))
    try fixture.crash()
    #expect(store.partialBytes == 0)
    #expect(try await store.removeUnfinished() == 1)
    #expect(fixture.files("incoming") + fixture.files("partials") == [])
    withExtendedLifetime(staged) {}
  }

  @Test("the last identity of a transfer applies to all of its bytes")
  func identifiedAnew() async throws {
    let staged = try await fixture.stage(.sample("b"), imageBytes(recorded))
    staged.identify(key, .sample(5_000_000))
    try staged.write(imageBytes(recorded))
    try fixture.crash()
    #expect(try await store.takePartial(.sample("b")) == nil)
    #expect(try await store.takePartial(key)?.response == .sample(5_000_000))
    withExtendedLifetime(staged) {}
  }

  @Test("unsynced bytes are dropped after a reboot, or if the boot id is unknown")
  func otherBoot() async throws {
    var held = [try await fixture.stage(key, imageBytes(recorded))]
    for bootID in ["second", nil] {
      try fixture.crash(bootID: bootID)
      #expect(try await store.takePartial(key) == nil)
      #expect(fixture.files("incoming") + fixture.files("partials") == [])
      try await fixture.setAside(key, imageBytes(recorded))
      #expect(try await fixture.kept(key) != nil)
      try await store.deletePartial(key)
      held.append(try await fixture.stage(key, imageBytes(recorded, seed: 7)))
    }
    withExtendedLifetime(held) {}
  }

  @Test("a stored partial transfer survives a crash of the machine")
  func setAside() async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    for bootID in ["second", nil, "first"] {
      try fixture.crash(bootID: bootID)
      #expect(store.partialBytes == 1_000)
      #expect(try await fixture.kept(key) == imageBytes(1_000))
    }
  }

  @Test("bytes appended to a stored transfer survive only within the same boot")
  func continued() async throws {
    let bytes = imageBytes(300_000)
    try await fixture.setAside(key, Array(bytes.prefix(1_000)))
    try fixture.crash(bootID: "second")
    let kept = try #require(try await store.takePartial(key))
    try kept.staged.write(Array(bytes.dropFirst(1_000)))
    try fixture.crash(bootID: "second")
    #expect(store.partialBytes == 300_000)
    let again = try #require(try await store.takePartial(key))
    #expect(again.bytes.read(at: 0, count: 300_000) == bytes)
    try fixture.crash(bootID: "third")
    #expect(try await fixture.kept(key) == Array(bytes.prefix(1_000)))
    #expect(store.partialBytes == 1_000)
    withExtendedLifetime((kept, again)) {}
  }

  @Test("a transfer that was opened and not changed is still stored")
  func taken() async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    let kept = try await store.takePartial(key)
    try fixture.crash(bootID: "second")
    #expect(try await fixture.kept(key) == imageBytes(1_000))
    withExtendedLifetime(kept) {}
  }

  @Test("the newer of two transfers with one key is kept")
  func two() async throws {
    try await fixture.setAside(key, imageBytes(1_000))
    try fixture.age()
    let staged = try await fixture.stage(key, imageBytes(recorded, seed: 2))
    try fixture.crash()
    #expect(fixture.files("partials").count == 2)
    #expect(try await fixture.kept(key) == imageBytes(recorded, seed: 2))
    withExtendedLifetime(staged) {}
  }

  @Test("bytes without a valid record are removed")
  func torn() async throws {
    for name in ["a", "b", "c", "d"] { try await fixture.setAside(.sample(name), imageBytes(100)) }
    try fixture.crash { path in
      let files = try bytesFiles(in: path + "/partials").sorted()
      unlink(files[0] + ".json")
      #expect(truncate(files[1] + ".json", 40) == 0)
      try Data("{}".utf8).write(to: URL(fileURLWithPath: files[2] + ".json"))
      unlink(files[3])
      for name in ["/partials/stray", "/partials/x.new", "/partials/.json"] {
        try Data([1]).write(to: URL(fileURLWithPath: path + name))
      }
      #expect(symlink("/etc/passwd", path + "/partials/link") == 0)
      #expect(symlink("/etc/passwd", path + "/partials/y.json") == 0)
    }
    #expect(store.partialBytes == 0)
    #expect(fixture.files("partials") == [])
    #expect(access("/etc/passwd", R_OK) == 0)
  }

  @Test("the record of a stored image is removed, also after a crash in between")
  func published() async throws {
    let staged = try await fixture.stage(key, imageBytes(recorded))
    try fixture.crash { path in
      for name in try bytesFiles(in: path + "/incoming") { unlink(name) }
    }
    #expect(store.partialBytes == 0)
    #expect(fixture.files("partials") == [])
    withExtendedLifetime(staged) {}
  }

  @Test("the oldest stored transfers are still removed first")
  func order() async throws {
    for name in ["a", "b", "c", "d"] {
      try await fixture.setAside(.sample(name), imageBytes(100))
      // Some kernels only update file times at each tick.
      try await Task.sleep(for: .milliseconds(15))
    }
    _ = try await fixture.kept(.sample("a"))
    try fixture.crash(maxBytes: 250)
    #expect(store.partialBytes == 200)
    for (name, isKept) in [("a", true), ("b", false), ("c", false), ("d", true)] {
      #expect(try await (fixture.kept(.sample(name)) != nil) == isKept, "\(name)")
    }
  }

  @Test("no transfer is stored if the limit is zero")
  func nothing() async throws {
    try await fixture.setAside(key, imageBytes(100))
    try fixture.crash(maxBytes: 0)
    #expect(fixture.files("partials") == [])
    #expect(store.partialBytes == 0)
    let staged = try await fixture.stage(key, imageBytes(recorded))
    #expect(fixture.files("partials") == [])
    try await staged.keepPartial()
    #expect(fixture.files("incoming") + fixture.files("partials") == [])
    #expect(try await store.takePartial(key) == nil)
  }
}
