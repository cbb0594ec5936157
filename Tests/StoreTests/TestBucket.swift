import Crypto
import Fetch
import Foundation
import Jobs
import Logging
import S3
import TestSupport
import Testing

/// A bucket of the real server that nobody else has: one that others make at the same time is not there at once.
struct TestBucket {
  let bucket: S3Bucket

  init() async throws {
    var configuration = CurlFetcher.Configuration()
    configuration.policy = .everywhere
    let endpoint = try #require(SourceURL(try await ObjectStore.shared().endpoint))
    bucket = S3Bucket(
      S3Bucket.Place(
        endpoint: endpoint, region: "us-east-1", bucket: "b" + UUID().uuidString.lowercased(),
        isPathStyle: true), sender: try CurlFetcher(configuration),
      credentials: S3CredentialSource(
        S3Credentials(accessKey: ObjectStore.accessKey, secretKey: ObjectStore.secretKey)),
      now: { Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000)) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await bucket.create()
  }

  /// Puts other bytes in an image's place.
  func harm(_ digest: ImageDigest, with bytes: [UInt8]) async throws {
    let other = try #require(ImageDigest(bytes: Data(SHA256.hash(data: Data(bytes)))))
    try await bucket.put(
      S3ImageStore.key(of: digest), OutgoingContent(bytes), digest: other)
  }
}
