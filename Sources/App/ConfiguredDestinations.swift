internal import Fetch
internal import Foundation
internal import Jobs
internal import Logging
internal import S3

/// Delivers images to the presigned URLs of clients and to the operator's buckets.
///
/// The address policy for origins also applies to presigned URLs. It does not apply to buckets.
struct ConfiguredDestinations: ImageDestinations {
  private let uploads: PresignedUpload
  private let buckets: [String: S3Bucket]
  private let log: Logger

  init(
    _ configuration: Configuration, fetcher: CurlFetcher, now: @escaping WallClock, log: Logger
  ) throws(StartError) {
    uploads = PresignedUpload(fetcher.sender(under: configuration.fetcher.policy))
    let sender = fetcher.sender(under: .everywhere)
    var buckets: [String: S3Bucket] = [:]
    for destination in configuration.destinations {
      buckets[destination.name] = S3Bucket(
        try S3Bucket.Address(destination),
        send: { request throws(FetchError) in try await sender.send(request) },
        credentials: destination.credentials,
        // The largest object that is sent in one request, at 1 MiB per second, and 60 seconds more.
        timeout: .seconds(60 + S3Bucket.largestWhole >> 20), tries: 3,
        firstPause: .milliseconds(500), now: now, log: log)
    }
    self.buckets = buckets
    self.log = log
  }

  func deliver(_ parcel: DeliveryUpload) async throws(DeliveryError) -> String? {
    switch parcel.target {
    case .put(let url, let headers):
      return try await uploads.put(
        parcel.content, as: parcel.contentType, to: url, for: parcel.owner, headers: headers)
    case .profile(let name, let key):
      guard let bucket = buckets[name] else { throw .unknown(to: name) }
      do throws(S3Error) {
        return try await bucket.store(
          key, parcel.content, digest: parcel.digest, type: parcel.contentType)
      } catch {
        // The full text is only logged: it may contain the operator's access key or endpoint.
        log.info("failed to deliver an image", metadata: ["to": "\(name)", "error": "\(error)"])
        throw DeliveryError(error, to: name)
      }
    }
  }
}

extension DeliveryError {
  fileprivate init(_ error: S3Error, to name: String) {
    switch error {
    case .unreachable(.cancelled): self = .cancelled
    case .unreachable(let error): self = .unreachable(to: name, error.naming(name))
    case .refused(let status, let code, _):
      let isWord =
        (1...64).contains(code.utf8.count) && code.allSatisfy { $0.isASCII && $0.isLetter }
      self = .refused(to: name, status: status, code: isWord ? code : nil)
    case .checksumMismatch: self = .differs(to: name)
    case .unexpected(let what):
      self = .unreachable(to: name, .noResponse(host: name, detail: what))
    case .noCredentials: self = .noCredentials(to: name)
    }
  }
}

extension Configuration.Destination {
  fileprivate var credentials: S3CredentialSource {
    if let keyFiles {
      S3CredentialSource(accessKeyFile: keyFiles.access, secretKeyFile: keyFiles.secret)
    } else {
      S3CredentialSource(file: nil, environment: ProcessInfo.processInfo.environment)
    }
  }
}

extension S3Bucket.Address {
  fileprivate init(_ destination: Configuration.Destination) throws(StartError) {
    let endpoint =
      destination.endpoint ?? "https://s3.\(destination.region).amazonaws.com"
    guard let url = SourceURL(endpoint) else {
      throw .operatorMistake("destinations.\(destination.name).endpoint: is not a URL")
    }
    self.init(
      endpoint: url, region: destination.region, bucket: destination.bucket,
      prefix: destination.prefix, isPathStyle: destination.isPathStyle)
  }
}
