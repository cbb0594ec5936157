internal import YAML

extension Configuration {
  /// One key of the configuration: its name, its environment variable, its values and its default.
  package struct Key: Sendable {
    /// The name with its sections: `fetch.max_bytes`.
    package let path: String
    /// A description of the values for messages and documentation: a range (`1ms…10m`) or a form (`true or false`).
    package let allowedValues: String
    let form: TextForm
    let read: @Sendable (Node, inout Configuration, inout [Complaint]) -> Void
    let show: @Sendable (Configuration) -> String
    /// Whether two configurations have the same value. Compares values, because `show` hides secrets.
    package let isEqual: @Sendable (Configuration, Configuration) -> Bool

    init<Value: Equatable>(
      _ path: String, _ property: any WritableKeyPath<Configuration, Value> & Sendable,
      _ format: ValueFormat<Value>
    ) {
      (self.path, self.allowedValues, self.form) = (path, format.allowedValues, format.form)
      read = { node, configuration, complaints in
        guard let value = format.read(node, &complaints) else { return }
        configuration[keyPath: property] = value
      }
      show = { format.show($0[keyPath: property]) }
      isEqual = { $0[keyPath: property] == $1[keyPath: property] }
    }

    /// The environment variable of the key, such as `IMAGEFETCH_FETCH_MAX_BYTES`.
    package var environmentName: String {
      Key.environmentPrefix + path.uppercased().replacing(".", with: "_")
    }

    /// The default, in YAML's flow style.
    package var defaultText: String { show(Configuration()) }

    static let environmentPrefix = "IMAGEFETCH_"
  }
}
