import Fetch
import Foundation
import Jobs
import Logging
import TestSupport
import Testing

@testable import S3

/// A bucket of the real server that nobody else has, and the configuration that names a place in it.
struct ServiceBucket {
  let bucket: S3Bucket
  let settings: [String: String]

  init() async throws {
    let store = try await ObjectStore.shared()
    let (name, prefix) = ("b" + UUID().uuidString.lowercased(), "kept")
    var configuration = CurlFetcher.Configuration()
    configuration.policy = .everywhere
    let endpoint = try #require(SourceURL(store.endpoint))
    bucket = S3Bucket(
      S3Bucket.Place(
        endpoint: endpoint, region: "us-east-1", bucket: name, prefix: prefix,
        isPathStyle: true), sender: try CurlFetcher(configuration),
      credentials: S3CredentialSource(
        S3Credentials(
          accessKey: ObjectStore.accessKey, secretKey: ObjectStore.secretKey)),
      now: { Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000)) },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    try await bucket.create()
    settings = [
      "IMAGEFETCH_STORAGE_IMAGES": "s3://\(name)/\(prefix)",
      "IMAGEFETCH_STORAGE_S3_ENDPOINT": store.endpoint,
      "AWS_ACCESS_KEY_ID": ObjectStore.accessKey,
      "AWS_SECRET_ACCESS_KEY": ObjectStore.secretKey,
    ]
  }

  /// But for the one that says whose they are.
  var keys: [String] {
    get async throws { try await bucket.list().objects.map(\.key).filter { $0 != BucketOwner.key } }
  }
}
