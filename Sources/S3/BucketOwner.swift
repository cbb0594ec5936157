internal import Fetch
internal import Foundation
public import Jobs

/// Says in a bucket whose images lie below its prefix: in the object `home`, which holds the name of a job store.
///
/// A job store removes what it does not know. So a place that holds another's images is refused before anything is
/// removed. Of several that come to an empty place at once one gets it.
public struct BucketOwner: Sendable {
  /// Why a job store may not use the place.
  public enum Refusal: Error, Sendable, Equatable {
    /// It is another one's, or it holds images but names no owner.
    case taken(by: String?, notBy: String)
    /// The bucket did not answer as it should.
    case bucket(S3Error)
    /// The job store did not.
    case store(StoreError)
  }

  /// Below the prefix. No image is named so.
  public static let key = "home"
  private static let maxNameBytes = 256
  private let bucket: S3Bucket
  /// For so long somebody else may be writing who saw no owner either, where the server knows no conditions.
  private let patience: Duration

  /// - Parameter bucket: whose prefix it is about.
  public init(of bucket: S3Bucket, patience: Duration = .seconds(1)) {
    (self.bucket, self.patience) = (bucket, patience)
  }

  /// Makes sure that the place is this job store's; takes it where it has no owner and no images.
  public func settle(for store: any ImageOwner) async throws(Refusal) {
    let name: String
    do throws(StoreError) { name = try await store.name() } catch { throw .store(error) }
    var owner = try await self.owner()
    if owner == nil {
      guard try await isEmpty() else { throw .taken(by: nil, notBy: name) }
      try await write(name)
      owner = try await self.owner()
    }
    guard owner == name else { throw .taken(by: owner, notBy: name) }
  }

  private func owner() async throws(Refusal) -> String? {
    do throws(S3Error) {
      return try await bucket.content(of: Self.key, atMost: Self.maxNameBytes).map {
        String(decoding: $0, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
      }
    } catch { throw .bucket(error) }
  }

  private func isEmpty() async throws(Refusal) -> Bool {
    var next: String?
    repeat {
      do throws(S3Error) {
        let page = try await bucket.list(after: next)
        if page.keys.contains(where: { S3ImageStore.name(of: $0) != nil }) { return false }
        next = page.next
      } catch { throw .bucket(error) }
    } while next != nil
    return true
  }

  /// Writes the name, unless somebody else did.
  private func write(_ name: String) async throws(Refusal) {
    do throws(S3Error) {
      guard try await create(name) else { return }
      // A server that minds the condition refuses it a second time.
      guard try await create(name) else { return }
    } catch {
      guard case .refused(501, _, _) = error else { throw .bucket(error) }
      do throws(S3Error) { try await put(name, isNew: false) } catch { throw .bucket(error) }
    }
    try? await Task.sleep(for: patience)
  }

  /// - Returns: false where there is one.
  private func create(_ name: String) async throws(S3Error) -> Bool {
    do throws(S3Error) {
      try await put(name, isNew: true)
      return true
    } catch {
      switch error {
      case .refused(412, _, _), .refused(409, _, _): return false
      default: throw error
      }
    }
  }

  private func put(_ name: String, isNew: Bool) async throws(S3Error) {
    let content = Array((name + "\n").utf8)
    try await bucket.put(
      Self.key, OutgoingContent(content), digest: ImageDigest(of: content), type: "text/plain",
      isNew: isNew)
  }
}

extension BucketOwner.Refusal: CustomStringConvertible {
  /// What is the matter, and what to do.
  public var description: String {
    switch self {
    case .taken(let owner, let name):
      """
      the images below this prefix belong to \(owner.map { "the job store \($0)" } ?? "a job store that left no name"), and this one, \(name), \
      would take them for left over; nothing was removed. Start with the job store that they belong to, or give this one \
      another prefix. To leave them to this one after all, write its name into the object "\(BucketOwner.key)" below the prefix
      """
    case .bucket(let error): "\(error)"
    case .store(let error): "the job store does not tell its name: \(error)"
    }
  }
}
