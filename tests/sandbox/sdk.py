"""OpenShell's own Python SDK, unmodified, against our gateway; and its descriptors against ours."""
import importlib
import pkgutil
import sys

import grpc
import openshell
import openshell._proto as protos
from google.protobuf import descriptor_pb2
from openshell import SandboxClient

# Fields that are ours; their numbers are far from OpenShell's, and its clients do not read them.
OURS = {("openshell.v1.ExecSandboxExit", 1001), ("openshell.v1.ExecSandboxExit", 1002)}


def messages(file, prefix, found):
    for message in file.message_type if hasattr(file, "message_type") else file.nested_type:
        name = f"{prefix}.{message.name}"
        found[name] = {f.number: (f.name, f.type, f.label, f.type_name, f.HasField("oneof_index")) for f in message.field}
        messages(message, name, found)


def compare(path):
    theirs, enums, methods = {}, {}, {}
    ours, our_enums, our_methods = {}, {}, {}
    wheel = []
    for module in pkgutil.iter_modules(protos.__path__):
        if module.name.endswith("_pb2"):
            file = descriptor_pb2.FileDescriptorProto()
            importlib.import_module(f"openshell._proto.{module.name}").DESCRIPTOR.CopyToProto(file)
            wheel.append(file)
    with open(path, "rb") as text:
        mine = descriptor_pb2.FileDescriptorSet.FromString(text.read()).file
    for files, into, values, calls in [(wheel, theirs, enums, methods), (mine, ours, our_enums, our_methods)]:
        for file in files:
            messages(file, file.package, into)
            values.update({f"{file.package}.{e.name}": {v.number: v.name for v in e.value} for e in file.enum_type})
            for service in file.service:
                for m in service.method:
                    calls[f"{file.package}.{service.name}.{m.name}"] = (m.input_type, m.output_type, m.client_streaming, m.server_streaming)
    checked = 0
    wrong = []
    for name, fields in ours.items():
        if not name.startswith("openshell."):
            continue
        for number, field in fields.items():
            if (name, number) in OURS:
                continue
            checked += 1
            if theirs.get(name, {}).get(number) != field:
                wrong.append(f"{name}.{number}: {theirs.get(name, {}).get(number)} is not {field}")
    for mine, their in [(our_enums, enums), (our_methods, methods)]:
        for name, value in mine.items():
            if name.startswith("openshell."):
                checked += 1
                if their.get(name) != value:
                    wrong.append(f"{name}: {their.get(name)} is not {value}")
    assert not wrong, "\n".join(wrong)
    assert checked > 150, checked


def lifecycle(client, name):
    assert client.health().version == "0.1.5", client.health()
    sandbox = client.create(name=name, workspace="default")
    assert sandbox.id and sandbox.name == name, sandbox
    client.wait_ready(name, workspace="default", timeout_seconds=30)
    result = client.exec(name, ["cat"], stdin=b"given", workspace="default")
    assert (result.exit_code, result.stdout) == (0, "given"), result
    result = client.exec(name, ["sh", "-c", "echo $A; pwd; echo err >&2; exit 3"], env={"A": "b c"}, workdir="/tmp", workspace="default")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "b c\n/tmp\n", "err\n"), result
    result = client.exec(name, ["sleep", "600"], timeout_seconds=1, workspace="default")
    assert result.exit_code == 124, result
    result = client.exec(name, ["sh", "-c", "kill -9 $$"], workspace="default")
    assert result.exit_code == 137, result
    assert name in [s.name for s in client.list_all(workspace="default")], name
    assert client.get(name, workspace="default").id == sandbox.id
    client.delete(name, workspace="default")
    client.wait_deleted(name, workspace="default")
    try:
        client.get(name, workspace="default")
        raise AssertionError("the sandbox is still there")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error


def main(unix, tcp, token, descriptors):
    compare(descriptors)
    lifecycle(SandboxClient(f"unix:{unix}"), "over-unix")
    lifecycle(SandboxClient(tcp, bearer_token=token), "over-tcp")
    for wrong in [None, "guess"]:
        client = SandboxClient(tcp, bearer_token=wrong)
        assert client.health().version
        try:
            client.list_all(workspace="default")
            raise AssertionError("a caller without the token was let in")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
    print("fine")


main(*sys.argv[1:])
