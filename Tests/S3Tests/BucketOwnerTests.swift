import Fetch
import Foundation
import Jobs
import Synchronization
import TestSupport
import Testing

@testable import S3

@Suite("Ownership of a bucket's images", .timeLimit(.minutes(15)))
struct BucketOwnerTests {
  /// A job store of that name.
  private struct Store: ImageOwner {
    var called: String

    func name() async throws(StoreError) -> String { called }
  }

  /// A bucket that contains one object, which is not an image.
  private static func bucket() async throws -> S3Bucket {
    let bucket = try await TestBucket(prefix: "kept").bucket
    try await put("notes/readme.txt", in: bucket)
    return bucket
  }

  private static func put(_ key: String, in bucket: S3Bucket) async throws {
    try await bucket.put(key, OutgoingContent([1]), digest: ImageDigest(of: [1]))
  }

  private static func owner(of bucket: S3Bucket) async throws -> String? {
    try await bucket.content(of: "home", atMost: 99).map { String(decoding: $0, as: UTF8.self) }
  }

  @Test("the first job store to claim an empty prefix owns it, also at later starts")
  func first() async throws {
    let bucket = try await Self.bucket()
    let place = BucketOwner(of: bucket)
    for _ in 0..<2 { try await place.claim(for: Store(called: "one")) }
    #expect(try await Self.owner(of: bucket) == "one\n")
    await #expect(throws: BucketOwner.Refusal.ownedByOther(by: "one", notBy: "two")) {
      try await place.claim(for: Store(called: "two"))
    }
  }

  @Test("one of several job stores that claim an empty prefix at once gets it")
  func atOnce() async throws {
    let place = BucketOwner(of: try await Self.bucket())
    let owners = await withTaskGroup(of: String?.self) { group in
      for number in 0..<8 {
        group.addTask {
          (try? await place.claim(for: Store(called: "\(number)"))).map { "\(number)" }
        }
      }
      return await group.reduce(into: []) { $0 += [$1].compactMap(\.self) }
    }
    #expect(owners.count == 1, "\(owners)")
    try await place.claim(for: Store(called: try #require(owners.first)))
  }

  @Test("a prefix with images but without an owner is refused until an operator names one")
  func unowned() async throws {
    let bucket = try await Self.bucket()
    let place = BucketOwner(of: bucket)
    let images: [ImageDigest] = [ImageDigest(of: [1]), ImageDigest(of: [2])]
    for image in images { try await Self.put(S3ImageStore.key(of: ImageName(image)), in: bucket) }
    let refusal = BucketOwner.Refusal.ownedByOther(by: nil, notBy: "new")
    await #expect(throws: refusal) { try await place.claim(for: Store(called: "new")) }
    #expect("\(refusal)".contains("nothing was deleted"))
    #expect(try await Self.owner(of: bucket) == nil)
    #expect(try await bucket.list().keys.count == 3)
    let name = Array("new".utf8)
    try await bucket.put("home", OutgoingContent(name), digest: ImageDigest(of: name))
    try await place.claim(for: Store(called: "new"))
  }

  @Test(
    "a second read detects another owner if the server ignores or rejects conditional writes",
    arguments: [501, 200])
  func unconditional(status: Int) async throws {
    let server = try OldServer(answeringConditions: status)
    defer { server.origin.stop() }
    let place = BucketOwner(
      of: try S3TroubleTests.bucket(at: server.origin), patience: .milliseconds(500))
    let late = Task { try await place.claim(for: Store(called: "one")) }
    await poll { server.writes == (status == 200 ? 2 : 1) }
    // Another job store that saw no owner either.
    server.write("two")
    await #expect(throws: BucketOwner.Refusal.ownedByOther(by: "two", notBy: "one")) {
      try await late.value
    }
    try await place.claim(for: Store(called: "two"))
  }
}

/// An object store with at most one object, which accepts every PUT without a condition.
private final class OldServer: Sendable {
  let origin: ScriptedOrigin
  private let state = Mutex<(content: String?, writes: Int)>((nil, 0))

  /// - Parameter status: the answer to a PUT with If-None-Match; with 200 the PUT is executed.
  init(answeringConditions status: Int) throws {
    origin = try ScriptedOrigin()
    let list = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    origin.on("/bucket", .ok(Array(list.utf8)))
    origin.on("/bucket/home") { [weak self] request in
      guard let self else { return .status(500) }
      guard request.method == "PUT" else { return answer }
      guard request.header("if-none-match") == nil || status == 200 else { return .status(status) }
      write("one")
      return .status(200)
    }
  }

  private var answer: ScriptedReply {
    state.withLock(\.content).map { .ok(Array($0.utf8)) }
      ?? .status(404, body: Array("<Error><Code>NoSuchKey</Code></Error>".utf8))
  }

  var writes: Int { state.withLock(\.writes) }

  func write(_ name: String) {
    state.withLock { state in
      state.content = name + "\n"
      state.writes += 1
    }
  }
}
