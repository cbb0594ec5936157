internal import Digests

/// The content that a batch has received, as a count and a digest. A request that repeats the batch's
/// `Idempotency-Key` is compared with it.
///
/// The digest is a chain with one step for each item: a line of text, a record of a CSV table or an element
/// of a JSON array. Therefore the beginning of a longer content can be compared with a batch that has
/// received only that part. An upload that continues a batch continues its chain.
package struct BatchContent: Sendable, Equatable, Codable {
  /// The number of items received.
  package private(set) var items = 0
  /// The chain's value after the last item.
  private(set) var digest = Self.empty
  /// Whether the content ends after these items.
  private(set) var isComplete: Bool

  private static let empty = ImageDigest(of: [])

  /// No items yet.
  package init(isComplete: Bool = false) { self.isComplete = isComplete }

  /// Adds an item.
  /// - Parameter context: Everything else in the content that decides what the item means.
  package mutating func add(_ item: some Sequence<UInt8>, in context: Context) {
    link(item, in: context)
    items += 1
  }

  /// Adds a member of the request that is not an item. Changes only the digest.
  package mutating func addMember(in context: Context) { link([], in: context) }

  private mutating func link(_ bytes: some Sequence<UInt8>, in context: Context) {
    digest = ImageDigest(of: digest.bytes + context.digest.bytes + bytes)
  }

  /// Marks the content as complete.
  package mutating func complete() { isComplete = true }

  /// What the content says outside its items: column names, defaults, webhook.
  package struct Context: Sendable {
    fileprivate var digest = BatchContent.empty

    package init() {}

    package mutating func add(_ name: String, _ value: [UInt8]) {
      let names = ImageDigest(of: Array(name.utf8))
      digest = ImageDigest(of: digest.bytes + names.bytes + value)
    }
  }
}

/// Compares a request's content with the content of the batch that its `Idempotency-Key` belongs to.
///
/// If the batch's content is complete, the contents must be equal. If its upload broke off or is still in progress, the
/// request must begin with what was received.
package struct BatchContentComparison: Sendable {
  private let known: BatchContent
  private var isPrefix = false
  private var isSame = false
  private var isLonger = false

  /// - Parameter known: The content that the batch has received.
  package init(with known: BatchContent) {
    self.known = known
    compare(BatchContent())
  }

  /// Compares the request's content as far as it was read. Call this after each item and member.
  package mutating func compare(_ content: BatchContent) {
    isSame = content.items == known.items && content.digest == known.digest
    isPrefix = isPrefix || isSame
    isLonger = content.items > known.items
  }

  /// Whether the contents agree; nil if more has to be read first.
  package var verdict: Bool? {
    if known.isComplete { return isLonger ? false : nil }
    return isPrefix ? true : isLonger ? false : nil
  }

  /// Whether the contents agree, once the request's content has ended.
  package var finalVerdict: Bool { known.isComplete ? isSame : isPrefix }
}
