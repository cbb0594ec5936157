internal import Synchronization

/// The members that apply to all lines of an upload that do not set them, and the tags of their batch.
///
/// A store saves them once per batch, and saves only the differing members of each line. Lines in memory
/// share the arrays.
package final class SharedDefaults: Sendable {
  /// The members. Its source is unused.
  package let submission: Submission
  package let tags: [String]
  private let memo = Mutex<Stored?>(nil)

  /// The stored form.
  package struct Stored: Sendable {
    /// Digest of the record. Lines refer to the defaults by it.
    package let digest: ImageDigest
    /// The record, encoded.
    package let record: [UInt8]
  }

  package init(_ submission: Submission, tags: [String]) {
    var submission = submission
    submission.defaults = nil
    (self.submission, self.tags) = (submission, tags)
  }

  /// Shorter defaults are repeated in each line, because a reference would take as much space.
  private static let leastBytes = 256

  /// The defaults of lines like `template`; nil if they are too short to be shared.
  package convenience init?(of template: NewJob) {
    guard template.keptBytes >= 256 + Self.leastBytes else { return nil }
    self.init(template.submission, tags: template.tags)
  }

  /// Decodes a stored record.
  /// - Throws: An error if the record cannot be decoded or has another digest.
  package convenience init(_ record: [UInt8], digest: ImageDigest) throws {
    guard ImageDigest(of: record) == digest else {
      throw StoreError.unreadable(
        detail: "the digest of a batch's defaults differs from the one in its lines")
    }
    let members = try StoredJSON.decode(DefaultsRecord.self, from: record)
    self.init(members.submission, tags: members.tags)
    memo.withLock { $0 = Stored(digest: digest, record: record) }
  }

  /// Returns the stored form. Encodes it the first time.
  package func stored() throws -> Stored {
    if let stored = memo.withLock(\.self) { return stored }
    let record = try StoredJSON.encode(DefaultsRecord(submission: submission, tags: tags))
    let stored = Stored(digest: ImageDigest(of: record), record: record)
    memo.withLock { $0 = stored }
    return stored
  }

  /// Bytes of the record; 0 if it was not encoded yet.
  package var recordBytes: Int { memo.withLock { $0?.record.count ?? 0 } }

  /// Bytes of the tags, which a store repeats for each line in its index of tags.
  package var tagBytes: Int { tags.reduce(0) { $0 + $1.utf8.count } }

  /// Returns the defaults with the canonical spelling of each host.
  package func spelled(by fetcher: some ImageFetcher) -> SharedDefaults {
    guard submission.alternatives.contains(where: { !$0.hasPlainHost }) else { return self }
    var submission = self.submission
    submission.spellHosts(by: fetcher)
    return SharedDefaults(submission, tags: tags)
  }
}

private struct DefaultsRecord: Codable {
  let submission: Submission
  let tags: [String]
}

/// Recently decoded defaults, by digest. All stores of a process share them, because equal digests have equal
/// records.
package enum KnownDefaults {
  private static let known = Mutex(LRUCache<ImageDigest, SharedDefaults>(capacity: 8 << 20))

  /// Returns the defaults, if known.
  package static func find(_ digest: ImageDigest) -> SharedDefaults? {
    known.withLock { $0.value(for: digest) }
  }

  /// Remembers defaults that have a record.
  package static func remember(_ defaults: SharedDefaults, _ digest: ImageDigest) {
    known.withLock { _ = $0.set(defaults, for: digest, cost: 1_024 + defaults.recordBytes * 2) }
  }
}

/// A job's tags. Encoded as null if they equal the defaults, and left out if there are none.
@propertyWrapper
package struct TagList: Sendable, Equatable, Codable {
  package var wrappedValue: [String]

  package init(wrappedValue: [String]) { self.wrappedValue = wrappedValue }

  /// Decodes what ``encode(to:)`` wrote with the same defaults.
  package init(from decoder: any Decoder) throws {
    let value = try decoder.singleValueContainer()
    guard value.decodeNil() else {
      wrappedValue = try value.decode([String].self)
      return
    }
    wrappedValue = (decoder.userInfo[.defaults] as? SharedDefaults)?.tags ?? []
  }

  package func encode(to encoder: any Encoder) throws {
    var value = encoder.singleValueContainer()
    if let defaults = encoder.userInfo[.defaults] as? SharedDefaults,
      defaults.tags.areSameTags(as: wrappedValue)
    {
      try value.encodeNil()
    } else {
      try value.encode(wrappedValue)
    }
  }
}

// The synthesized `Codable` implementation calls these methods instead of the generic ones.
extension KeyedEncodingContainer {
  mutating func encode(_ member: TagList, forKey key: Key) throws {
    if !member.wrappedValue.isEmpty { try member.encode(to: superEncoder(forKey: key)) }
  }
}

extension KeyedDecodingContainer {
  func decode(_: TagList.Type, forKey key: Key) throws -> TagList {
    contains(key) ? try TagList(from: superDecoder(forKey: key)) : TagList(wrappedValue: [])
  }
}
