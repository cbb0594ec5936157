import Fetch
import Foundation
import Jobs
import TestSupport
import Testing

@testable import S3

/// Long: starts four processes and needs 60 packages.
@Suite(
  "A bucket of a server that verifies digests and the region", .timeLimit(.minutes(15)),
  .enabled(if: ProcessInfo.processInfo.environment["LONG_TESTS"] == "1"))
struct OtherObjectStoreTests {
  @Test("a bucket stores, returns, lists and deletes objects, and rejects wrong signatures")
  func bucket() async throws {
    try #require(OpenStackSwift.isInstalled, "make test-long installs it")
    let server = try await OpenStackSwift()
    let credentials = S3Credentials(
      accessKey: OpenStackSwift.accessKey, secretKey: OpenStackSwift.secretKey)
    let name = "b" + UUID().uuidString.lowercased()
    let bucket = try S3Bucket.forTests(
      at: server.endpoint, named: name, prefix: "p & q", credentials)
    try await bucket.create()
    var keys: [String] = []
    for count in [0, 1, 100_000, 3_000_000] {
      let bytes = [UInt8](repeating: UInt8(count % 251), count: count)
      let digest = TestBucket.digest(of: bytes)
      let key = S3ImageStore.key(of: ImageName(digest, generation: Int64(count)))
      keys.append(key)
      try await bucket.put(key, OutgoingContent(bytes), digest: digest)
      let got = try #require(try await bucket.get(key, atMost: count))
      #expect(try await S3BucketTests.read(got) == bytes)
    }
    #expect(try await Set(bucket.list().keys) == Set(keys))
    for key in keys { try await bucket.remove(key) }
    try await bucket.remove(keys[0])
    #expect(try await bucket.get(keys[0], atMost: 9) == nil)
    #expect(try await bucket.list().keys.isEmpty)

    // The content differs from the signed one.
    let corrupt = await status {
      try await bucket.put("a", OutgoingContent([1, 2, 3]), digest: TestBucket.digest(of: [1, 2]))
    }
    #expect(corrupt == 400)
    #expect(try await bucket.get("a", atMost: 9) == nil)
    let elsewhere = try S3Bucket.forTests(
      at: server.endpoint, named: name, credentials, region: "eu-west-1")
    let refused = await status { _ = try await elsewhere.list() }
    #expect(refused == 400 || refused == 403)
  }

  /// The status with which a request is refused; `nil` if it succeeds.
  private func status(_ body: () async throws -> Void) async -> Int? {
    do { try await body() } catch {
      guard let error = error as? S3Error, case .refused(let status, _, _) = error else { return 0 }
      return status
    }
    return nil
  }
}
