internal import Fetch
internal import Foundation
package import Jobs

/// Records which job store owns the images below a bucket's prefix. The object `home` contains the
/// job store's name.
///
/// A job store deletes images that it does not know. Therefore a prefix with another store's images
/// is refused before anything is deleted. If several job stores claim an empty prefix at once, one
/// of them gets it.
package struct BucketOwner: Sendable {
  /// Why a job store may not use the prefix.
  package enum Refusal: Error, Sendable, Equatable {
    /// It belongs to another job store, or it contains images but names no owner.
    case ownedByOther(by: String?, notBy: String)
    /// The request to the bucket failed.
    case bucket(S3Error)
    /// The request to the job store failed.
    case store(StoreError)
  }

  /// The object's key below the prefix. No image has this key.
  package static let key = "home"
  private static let maxNameBytes = 256
  private let bucket: S3Bucket
  /// If the server ignores conditions, another job store that saw no owner may still be writing
  /// during this time.
  private let conflictDelay: Duration

  /// - Parameter bucket: the bucket and prefix to check.
  package init(of bucket: S3Bucket, patience: Duration = .seconds(1)) {
    (self.bucket, self.conflictDelay) = (bucket, patience)
  }

  /// Verifies that the prefix belongs to this job store. Claims it if it has no owner and no images.
  package func claim(for store: any ImageOwner) async throws(Refusal) {
    let name: String
    do throws(StoreError) { name = try await store.name() } catch { throw .store(error) }
    var owner = try await self.owner()
    if owner == nil {
      guard try await isEmpty() else { throw .ownedByOther(by: nil, notBy: name) }
      try await write(name)
      owner = try await self.owner()
    }
    guard owner == name else { throw .ownedByOther(by: owner, notBy: name) }
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

  /// Writes the name, unless another job store wrote one first.
  private func write(_ name: String) async throws(Refusal) {
    do throws(S3Error) {
      guard try await create(name) else { return }
      // The second request must fail if the server supports the condition.
      guard try await create(name) else { return }
    } catch {
      guard case .refused(501, _, _) = error else { throw .bucket(error) }
      do throws(S3Error) { try await put(name, isNew: false) } catch { throw .bucket(error) }
    }
    try? await Task.sleep(for: conflictDelay)
  }

  /// - Returns: `false` if the object exists.
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
  /// The problem and what to do about it.
  package var description: String {
    switch self {
    case .ownedByOther(let owner, let name):
      """
      the images below this prefix belong to \(owner.map { "the job store \($0)" } ?? "a job store without a name"), but this service uses \
      the job store \(name), which would delete them; nothing was deleted. Start with the job store that owns them, or configure another \
      prefix. To give them to this job store instead, write its name into the object "\(BucketOwner.key)" below the prefix
      """
    case .bucket(let error): "\(error)"
    case .store(let error): "can't read the name of the job store: \(error)"
    }
  }
}
