internal import YAML

extension Configuration {
  /// One key: its name, and by that the variable's; what it takes; its default.
  public struct Key: Sendable {
    /// The name with its sections: `fetch.max_bytes`.
    public let path: String
    /// What it takes, for people: bounds (`1ms…10m`) or a form (`true or false`).
    public let takes: String
    let form: TextForm
    let read: @Sendable (Node, inout Configuration, inout [Complaint]) -> Void
    let show: @Sendable (Configuration) -> String
    /// By their values: of secrets nothing is shown.
    public let isEqual: @Sendable (Configuration, Configuration) -> Bool

    init<Value: Equatable>(
      _ path: String, _ property: any WritableKeyPath<Configuration, Value> & Sendable,
      _ format: ValueFormat<Value>
    ) {
      (self.path, self.takes, self.form) = (path, format.takes, format.form)
      read = { node, configuration, complaints in
        guard let value = format.read(node, &complaints) else { return }
        configuration[keyPath: property] = value
      }
      show = { format.show($0[keyPath: property]) }
      isEqual = { $0[keyPath: property] == $1[keyPath: property] }
    }

    /// The variable that sets it: `IMAGEFETCH_FETCH_MAX_BYTES`.
    public var environmentName: String {
      Key.environmentPrefix + path.uppercased().replacing(".", with: "_")
    }

    /// Its default, in YAML's flow style.
    public var defaultText: String { show(Configuration()) }

    static let environmentPrefix = "IMAGEFETCH_"
  }
}
