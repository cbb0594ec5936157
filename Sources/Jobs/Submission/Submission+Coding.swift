// A record contains only the members that differ from an empty submission, or from the batch's defaults if
// the encoder and the decoder have them.

extension Submission: Codable {
  /// The name of a member in a record. That of an option is its name in the API.
  struct Key: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }

    init(_ option: JobOption) { self.init(stringValue: option.rawValue) }
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }

    static let source = Key(stringValue: "source")
    static let savesData = Key(stringValue: "savesData")
    static let trace = Key(stringValue: "trace")
    static let hosts = Key(stringValue: "hosts")
    static let allHosts = Key(stringValue: "allHosts")
  }

  package func encode(to encoder: any Encoder) throws {
    let base = (encoder.userInfo[.defaults] as? SharedDefaults)?.submission ?? Self.empty
    var members = encoder.container(keyedBy: Key.self)
    try members.encode(source, forKey: .source)
    for (option, member) in JobOption.members { try member.encode(self, base, &members, option) }
    if savesData != base.savesData { try members.encode(savesData, forKey: .savesData) }
    if trace != base.trace { try members.encode(trace, forKey: .trace) }
    // The hosts of the source precede those of the alternatives, which all lines share.
    let ownHosts = hosts.dropLast(base.hosts.count)
    if hosts.suffix(base.hosts.count) != base.hosts[...] {
      try members.encode(hosts, forKey: .allHosts)
    } else if !ownHosts.isEmpty {
      try members.encode(Array(ownHosts), forKey: .hosts)
    }
  }

  /// Decodes what ``encode(to:)`` wrote with the same defaults.
  package init(from decoder: any Decoder) throws {
    let defaults = decoder.userInfo[.defaults] as? SharedDefaults
    self = defaults?.submission ?? Self.empty
    self.defaults = defaults
    let members = try decoder.container(keyedBy: Key.self)
    source = try members.decode(Source.self, forKey: .source)
    for (option, member) in JobOption.members where members.contains(Key(option)) {
      try member.decode(&self, members, option)
    }
    if members.contains(.savesData) {
      savesData = try members.decode(Bool.self, forKey: .savesData)
    }
    if members.contains(.trace) { trace = try members.decode(TraceContext?.self, forKey: .trace) }
    if members.contains(.allHosts) {
      hosts = try members.decode([HostSpelling].self, forKey: .allHosts)
    } else if members.contains(.hosts) {
      hosts = try members.decode([HostSpelling].self, forKey: .hosts) + hosts
    }
  }
}
