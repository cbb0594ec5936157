/// A value of an option.
protocol OptionValue: Codable, Equatable, Sendable {
  /// Bytes of its texts and arrays.
  var textBytes: Int { get }
}

/// The member of ``Submission`` that stores an option's value, with operations that hide the value's type.
struct SubmissionMember: Sendable {
  /// Encodes the value if it differs from that of the defaults. Encodes nil as null if the default is not nil.
  let encode:
    @Sendable (
      Submission, _ defaults: Submission, inout KeyedEncodingContainer<Submission.Key>, JobOption
    ) throws -> Void
  /// Decodes what ``encode`` wrote.
  let decode:
    @Sendable (inout Submission, KeyedDecodingContainer<Submission.Key>, JobOption) throws -> Void
  /// Returns the bytes of texts and arrays that differ from the defaults.
  let textBytes: @Sendable (Submission, _ defaults: Submission?) -> Int
  /// Returns the value as a text; nil if it is the same as in an empty submission.
  let text: @Sendable (Submission) -> String?

  init<Value: OptionValue>(_ path: any WritableKeyPath<Submission, Value> & Sendable) {
    encode = { submission, defaults, members, option in
      let value = submission[keyPath: path]
      if value != defaults[keyPath: path] { try members.encode(value, forKey: .init(option)) }
    }
    decode = { submission, members, option in
      submission[keyPath: path] = try members.decode(Value.self, forKey: .init(option))
    }
    textBytes = { submission, defaults in
      let value = submission[keyPath: path]
      return value == defaults?[keyPath: path] ? 0 : value.textBytes
    }
    text = { submission in
      let value = submission[keyPath: path]
      return value == Submission.empty[keyPath: path] ? nil : "\(value)"
    }
  }
}

extension Submission {
  /// A submission without options. Its source is unused.
  static let empty = Submission(source: .local(""))

  /// The names and values of the options that equal jobs have in common, in addition to the resource.
  var loadParts: [String] { parts(JobOption.ofLoads) }

  /// The names and values of the options that equal views have in common.
  package var viewParts: [String] { parts(JobOption.ofViews) }

  private func parts(_ members: [JobOption.Member]) -> [String] {
    members.flatMap { option, member in member.text(self).map { [option.rawValue, $0] } ?? [] }
  }
}
