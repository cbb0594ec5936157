// The options of a job, with one row each. The rows drive all code that treats options alike: stored records
// and their memory, the keys of equal jobs and views, the columns of CSV batches, the parameters of queries, and
// suggestions for misspelled names.
//
// A new option is a case with its row here, a member of `Submission`, and a case of `SubmissionDecoder.set`, which
// checks its value. The compiler finds a missing row or case; `JobOptionTests` compares openapi.yaml with the rows.

/// A member of a job, or a parameter of a query, that clients may send. Its raw value is its name.
package enum JobOption: String, Sendable, CaseIterable {
  case url, local
  case lowDataURL = "low_data_url"
  case alternatives
  case cacheKey = "cache_key"
  case headers, cache
  case cacheTTL = "cache_ttl"
  case integrity, priority, timeout
  case maxBytes = "max_bytes"
  case maxPixels = "max_pixels"
  case maxAttempts = "max_attempts"
  case retention, tags, variants, original, notify, deliver

  private var definition: Row {
    switch self {
    case .url: Row(.text, [.url, .view], .resource)
    case .local: Row(.text, .local, .resource)
    case .lowDataURL: Row(.text, [.url, .view], .resource)
    case .alternatives: Row(.list, [.url, .view], .view, \.alternatives)
    case .cacheKey: Row(.text, [.url, .view], .resource, \.cacheKey)
    case .headers: Row(.json, .url, .resource, \.headers)
    case .cache: Row(.text, [.url, .local, .view], .load, \.cacheMode)
    // With `.view`, one owner's value could give other owners a stale image.
    case .cacheTTL: Row(.number, [.url, .local, .view], .load, \.cacheTTL)
    case .integrity: Row(.text, .any, .view, \.integrity)
    case .priority: Row(.text, .any, .none)
    case .timeout: Row(.number, .any, .view, \.timeout)
    case .maxBytes: Row(.number, .any, .view, \.maxBytes)
    case .maxPixels: Row(.number, .any, .view, \.maxPixels)
    case .maxAttempts: Row(.number, .any, .view, \.maxAttempts)
    case .retention: Row(.number, .any, .view, \.retention)
    case .tags: Row(.list, .any, .view)
    case .variants: Row(.json, .any, .none, \.variants)
    case .original: Row(.text, .submitted, .load, \.dropsOriginal)
    case .notify: Row(.json, .submitted, .view, \.webhook)
    case .deliver: Row(.json, .submitted, .view, \.deliveries)
    }
  }

  /// How a value is written in a query or a CSV file.
  package enum Form: Sendable {
    case text, number
    /// JSON: an object or an array.
    case json
    /// An array of strings: the parameter is repeated; a cell has one string, or JSON.
    case list
  }

  /// The kinds of jobs that have an option.
  package struct Kinds: OptionSet, Sendable {
    package let rawValue: Int
    package init(rawValue: Int) { self.rawValue = rawValue }

    /// Images from URLs, submitted as jobs.
    static let url = Kinds(rawValue: 1)
    static let local = Kinds(rawValue: 2)
    package static let upload = Kinds(rawValue: 4)
    /// Jobs of `GET /image`.
    package static let view = Kinds(rawValue: 8)
    static let submitted: Kinds = [.url, .local, .upload]
    static let any: Kinds = [.submitted, .view]
  }

  /// Which jobs are different because of an option.
  enum Identity: Sendable {
    /// The option names the image or is sent to its origin. `Job+Request` adds it to the keys of loads and responses.
    case resource
    /// Jobs with different values share no load.
    case load
    /// Jobs with different values may share a load. Views with different values have different jobs.
    case view
    /// Jobs with different values may share a load, and views a job.
    case none
  }

  package struct Row: Sendable {
    package let form: Form
    package let kinds: Kinds
    let identity: Identity
    /// Nil for the source and for members of ``NewJob``.
    let member: SubmissionMember?

    fileprivate init(_ form: Form, _ kinds: Kinds, _ identity: Identity) {
      (self.form, self.kinds, self.identity, member) = (form, kinds, identity, nil)
    }

    fileprivate init<Value: OptionValue>(
      _ form: Form, _ kinds: Kinds, _ identity: Identity,
      _ path: any WritableKeyPath<Submission, Value> & Sendable
    ) {
      (self.form, self.kinds, self.identity) = (form, kinds, identity)
      member = SubmissionMember(path)
    }
  }

  private static let rows = Dictionary(
    uniqueKeysWithValues: allCases.map { ($0, $0.definition) })

  package var row: Row { Self.rows[self]! }  // has all cases

  /// Whether the option is part of the source. Each line of a batch has its own source, so these options have no
  /// defaults.
  package var isSource: Bool { [.url, .local, .lowDataURL].contains(self) }

  typealias Member = (option: JobOption, member: SubmissionMember)
  /// The options that are members of `Submission`.
  static let members: [Member] = allCases.compactMap { option in
    option.row.member.map { (option, $0) }
  }
  static let ofLoads = members.filter { $0.option.row.identity == .load }
  static let ofViews = members.filter { $0.option.row.identity != .none }

  /// Returns the options of a kind of job.
  package static func all(of kind: Kinds) -> [JobOption] {
    allCases.filter { $0.row.kinds.contains(kind) }
  }
}

extension Source {
  /// The kind of a job with this source.
  package var kind: JobOption.Kinds {
    switch self {
    case .url: .url
    case .local: .local
    case .captured: .upload
    }
  }
}
