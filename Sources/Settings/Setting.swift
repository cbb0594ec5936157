package import YAML

// The declaration of configuration keys.
//
// A module declares its keys in an array of `Setting`, next to the struct that they set. A row has the key's name, the
// property, the allowed values and one sentence of documentation; the default is the property's initial value. App merges
// the arrays. Files, environment variables, flags, `imagefetch check`, deploy/imagefetch.yaml and the table of
// docs/configuration.md come from them.

/// One key of the configuration, which sets a property of `Root`.
package struct Setting<Root: Sendable>: Sendable {
  /// The name with its sections: `fetch.max_bytes`.
  package let path: String
  /// A description of the values for messages and documentation: a range (`1ms…10m`) or a form (`true or false`).
  package let allowedValues: String
  /// The documentation of the key: sentences, then possibly lines with an example.
  package let doc: String
  /// How the text of an environment variable or a flag is read.
  package let form: TextForm
  /// Sets the property to a node's value, or adds complaints.
  package let read: @Sendable (Node, inout Root, inout [Complaint]) -> Void
  /// The value in YAML's flow style. Secrets are hidden.
  package let show: @Sendable (Root) -> String
  /// Whether two configurations have the same value. Compares values, because `show` hides secrets.
  package let isEqual: @Sendable (Root, Root) -> Bool
  /// Sets the property of the second configuration to the value of the first.
  package let copy: @Sendable (Root, inout Root) -> Void

  /// Declares a key.
  package init<Value: Equatable>(
    _ path: String, _ property: any WritableKeyPath<Root, Value> & Sendable,
    _ format: ValueFormat<Value>, _ doc: String
  ) {
    (self.path, self.doc) = (path, doc)
    (allowedValues, form) = (format.allowedValues, format.form)
    read = { node, root, complaints in
      guard let value = format.read(node, &complaints) else { return }
      root[keyPath: property] = value
    }
    show = { format.show($0[keyPath: property]) }
    isEqual = { $0[keyPath: property] == $1[keyPath: property] }
    copy = { $1[keyPath: property] = $0[keyPath: property] }
  }

  /// The same key of a configuration that contains this one.
  package init<Part>(_ key: Setting<Part>, of part: any WritableKeyPath<Root, Part> & Sendable) {
    (path, allowedValues, doc, form) = (key.path, key.allowedValues, key.doc, key.form)
    read = { key.read($0, &$1[keyPath: part], &$2) }
    show = { key.show($0[keyPath: part]) }
    isEqual = { key.isEqual($0[keyPath: part], $1[keyPath: part]) }
    copy = { key.copy($0[keyPath: part], &$1[keyPath: part]) }
  }

  /// The environment variable of the key, such as `IMAGEFETCH_FETCH_MAX_BYTES`.
  package var environmentName: String {
    SettingName.environmentPrefix + path.uppercased().replacing(".", with: "_")
  }
}

/// Names that all keys share.
package enum SettingName {
  /// The start of the environment variables.
  package static let environmentPrefix = "IMAGEFETCH_"
}

/// A mistake in a value, without the key and the source that the value belongs to.
package struct Complaint {
  /// The place in the text; nil for the start of the value.
  package var location: Location?
  /// The part that follows the key's path, such as `[0].scopes`.
  package var inner: String
  package var message: String

  package init(location: Location?, inner: String = "", message: String) {
    (self.location, self.inner, self.message) = (location, inner, message)
  }
}
